// Compares two checkpoints tensor by tensor, to the bit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace espalier::store {

struct TensorDifference {
  enum class Kind { kValues, kShapeOrType, kOnlyInFirst, kOnlyInSecond };
  Kind kind = Kind::kValues;
  std::string name;
  std::string first, second;      // shape and type, as text ("BF16 [33, 7]"); empty where it is missing
  int64_t num_different = 0;      // elements whose bits differ
  double largest_difference = 0;  // of the values; NaN when one of a differing pair is NaN
};

struct CheckpointDifference {
  int64_t num_compared = 0;               // tensors in both, of the same shape and type
  std::vector<TensorDifference> tensors;  // those that are not bitwise equal, in the first one's order
  std::vector<std::string> state;         // fields of the training state that differ: "step: 10 | 20"
};

// Both are step folders. Blocks are checked while they are read, so a damaged file is a UserError, not a difference.
CheckpointDifference diff_steps(const std::filesystem::path& first, const std::filesystem::path& second);

}  // namespace espalier::store
