// Puts the parts of a Megatron checkpoint together to whole tensors, any range of them at a time.
//
//   const MegatronMerge merge(checkpoint, specs, {TensorKind::kWeight}, {.version = checkpoint.version, ...});
//   for (size_t n = 0; n < merge.tensors().size(); ++n) merge.fill(n, begin, end, dtype, destination);
//
// Files are mapped; nothing else is held. A parameter that is missing, unknown, of another shape or not covered by its
// parts is a UserError (kBadData) that names file, key, expected and found; all of them are listed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "convert/copy_pieces.h"
#include "convert/megatron/checkpoint.h"
#include "spec/param_spec.h"

namespace espalier::convert {

// In what order files hold rows that we hold otherwise.
//   version < 1:  query_key_value of a rank as [3, heads, head size]; version < 2: [heads, head size, 3];
//   from 2 on [heads, 3, head size], as ours. key_value of cross-attention likewise, with 2 parts.
//   activated_half_last: gated layers hold what is multiplied first, what passes the activation second.
struct RowOrder {
  double version = 3;
  int64_t head_size = 1;
  bool activated_half_last = false;
};

// The parts that a rank keeps of a parameter: runs of its file's elements and where they are in the whole tensor.
// `local_begin` of an extent counts in the order of the file.
std::vector<spec::Extent> stored_extents(const spec::ParamSpec& spec, const spec::TensorShard& place,
                                         const RowOrder& order);

struct MergedTensor {
  const spec::ParamSpec* spec = nullptr;
  TensorKind kind = TensorKind::kWeight;
  // Numbers for fill(): the tensor as each of those ranks has it that have all of it. More than one where ranks keep
  // copies, which should be equal: the first is the one that counts.
  std::vector<size_t> copies;
  std::vector<std::string> copy_names;  // "tensor rank 1", "the last stage"
};

// Where copies of a tensor differ.
struct CopyDifference {
  std::string name, first, other;  // of the tensor, and of the two copies
  int64_t num_different = 0, num_elements = 0;
  double largest_difference = 0;  // NaN where one of a differing pair is NaN
};

class MegatronMerge {
 public:
  // `kinds`: those that are put together; others of the checkpoint are left out.
  MegatronMerge(const MegatronCheckpoint& checkpoint, const std::vector<spec::ParamSpec>& specs,
                const std::vector<TensorKind>& kinds, const RowOrder& order);

  const std::vector<MergedTensor>& tensors() const { return tensors_; }
  // The type in which the first part of a copy is stored.
  store::DType dtype(size_t copy) const;
  // Elements [begin, end) of a copy. Thread-safe.
  void fill(size_t copy, int64_t begin, int64_t end, store::DType dtype, void* destination) const;
  // All differences between copies of `tensor`, largest first.
  std::vector<CopyDifference> differences(const MergedTensor& tensor) const;

 private:
  void add_shard(const MegatronShard& shard, const spec::ParamSpec& spec, size_t copy, const RowOrder& order);
  const uint8_t* data_of(const store::TensorView& view);

  TensorMap map_;
  std::vector<SourceTensor> sources_;
  std::vector<std::vector<uint8_t>> packed_;  // of views that are not packed in their files
  std::map<std::filesystem::path, MappedFile> files_;
  std::vector<MergedTensor> tensors_;
  std::unique_ptr<PieceCopier> copier_;
};

}  // namespace espalier::convert
