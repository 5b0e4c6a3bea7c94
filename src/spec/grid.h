// The grid of processes: how many along each axis, and who sits where. Data; no groups, no communication.
//
// Rank order is Megatron's: tensor fastest, then context, data, pipeline
// (rank = ((pipeline * data + d) * context + c) * tensor + t).
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace espalier::spec {

enum class Axis { kTensor, kContext, kData, kPipeline };
inline constexpr int kNumAxes = 4;

// Number of processes along each axis; all at least 1.
struct GridShape {
  int64_t tensor = 1, context = 1, data = 1, pipeline = 1;

  int64_t size(Axis axis) const;
  int64_t num_ranks() const { return tensor * context * data * pipeline; }
  bool operator==(const GridShape&) const = default;
};

// Position of one process along each axis.
struct GridPosition {
  int64_t tensor = 0, context = 0, data = 0, pipeline = 0;
  bool operator==(const GridPosition&) const = default;
};

GridPosition position_of(const GridShape& shape, int64_t rank);
int64_t rank_of(const GridShape& shape, const GridPosition& position);

// "tp2pp1dp4"; context parallelism appears only when used ("tp2cp2pp1dp4").
std::string to_string(const GridShape& shape);

}  // namespace espalier::spec
