// What all ranks hold, or want, of the tensors of a checkpoint. Each rank describes its parts as text; the texts of all
// ranks, gathered, make the same inventory everywhere.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/local_tensor.h"
#include "plan/reshape.h"
#include "store/step_writer.h"

namespace espalier::ckpt {

// One line: name, file, type, global shape, extents.
std::string describe_part(const std::string& name, const std::string& file, const at::Tensor& value,
                          const std::optional<TensorPart>& part);

class Inventory {
 public:
  // `parts`: the lines of every rank, in order. CHECKs that ranks agree about files, types and shapes.
  Inventory(const std::vector<std::string>& parts, int64_t own_rank);

  // In the order in which they first appear.
  const std::vector<store::TensorFacts>& facts() const { return facts_; }
  const std::vector<plan::SavedTensor>& saved() const { return saved_; }
  // Number of a tensor in this rank's own list, for those that it has.
  const std::map<size_t, size_t>& own() const { return own_; }

 private:
  size_t add(const std::string& line, int64_t rank);

  std::vector<store::TensorFacts> facts_;
  std::vector<plan::SavedTensor> saved_;
  std::map<std::string, size_t> index_;
  std::map<size_t, size_t> own_;
};

}  // namespace espalier::ckpt
