// Copies that must be equal on all ranks to the last bit: compared by hash, named where they differ, and repaired.
//
// Copies that are equal cost one pass over their bytes and one exchange of 128 bytes a rank. Collective over
// grid.world: all ranks call alike, and all come to the same differences. Nothing happens where a rank is alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dist/grid.h"

namespace espalier::dist {

// Axes along which ranks hold copies of one thing; several: all ranks that differ only along these.
struct CopyAxes {
  bool gradient = false;  // data and context
  bool tensor = false;
  bool pipeline = false;        // all stages
  std::vector<int64_t> stages;  // these

  auto operator<=>(const CopyAxes&) const = default;
};
inline const CopyAxes kEveryRank{.gradient = true, .tensor = true, .pipeline = true, .stages = {}};

// What this rank holds of something that others hold as well. Ranks that hold copies list them in the same order.
struct Copy {
  std::string name;   // another for each copy of a rank
  at::Tensor values;  // contiguous, as many everywhere; repair writes it
  CopyAxes axes;
};

// Copies with other bits than most ranks have.
struct CopyDifference {
  std::string name;
  std::vector<int64_t> kept;    // ranks with the values that most of them hold; of several such, the lowest rank's
  std::vector<int64_t> others;  // ranks that hold something else
  std::string kept_value, other_value;  // where it is one number; of the first of the ranks

  bool has_majority() const { return kept.size() > others.size(); }
};

std::vector<CopyDifference> find_differences(const std::vector<Copy>& copies, const Grid& grid);

// Sends the kept values to the ranks that hold others.
void repair(const std::vector<Copy>& copies, const std::vector<CopyDifference>& differences, const Grid& grid);

// One sentence for each set of ranks, whichever copies they differ in:
// "rank 3 does not hold what ranks 0, 1, 2 hold (majority): layers.0.input_layernorm.weight"
std::vector<std::string> describe(const std::vector<CopyDifference>& differences);

}  // namespace espalier::dist
