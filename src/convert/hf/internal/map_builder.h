// Fills the map of a codec, tensor by tensor (HfCodec::map).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convert/hf/codec.h"

namespace espalier::convert {

// Heads of attention; each group of queries shares a key and a value.
struct HeadShape {
  int64_t num_heads = 0, num_groups = 0, head_size = 0;
};

class HfMapBuilder {
 public:
  // Begins with all tensors of ours.
  HfMapBuilder(const ModelConfig& model, const HfTensors& theirs);

  // What our names below begin with: "layers.3.".
  void set_prefix(const std::string& ours) { prefix_ = ours; }
  size_t ours(const std::string& name) const { return map_.ours.number_of(prefix_ + name); }
  const std::vector<int64_t>& our_shape(const std::string& name) const { return map_.ours[ours(name)].shape; }
  TensorMap& map() { return map_; }

  // The same shape on both sides.
  void same(const std::string& name, const std::string& theirs);
  void same_module(const std::string& name, const std::string& theirs, bool has_bias = true);
  // Rows of a vocabulary, of a matrix or a bias; ours may have more, which are padding: an import gives them `value`.
  void add_vocabulary(const std::string& name, const std::string& theirs, float value = 0);
  // Once more in a tensor of theirs, which some folders have.
  void copy_vocabulary(const std::string& name, const std::string& theirs);
  // Ours: for each group its query heads, its key, its value. Theirs: all queries, all keys, all values, in three
  // tensors or in one.
  void add_qkv(const std::string& name, const HeadShape& heads, const std::vector<std::string>& theirs);
  // Ours: for each group its key and its value. Theirs: all keys, all values, in two tensors.
  void add_key_value(const std::string& name, const HeadShape& heads, const std::vector<std::string>& theirs);

  TensorMap take();  // checked

 private:
  size_t add_rows(const std::string& name, const std::string& theirs);
  // Ours: for each group `counts` heads of each part; theirs: each part of all groups, in a tensor each or in one.
  void add_groups(const std::string& name, const HeadShape& heads, const std::vector<int64_t>& counts,
                  const std::vector<std::string>& theirs);

  int64_t vocab_rows_;
  std::string prefix_;
  TensorMap map_;
};

}  // namespace espalier::convert
