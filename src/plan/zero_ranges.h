// What of a process's parameters each data-parallel rank owns under ZeRO (Rajbhandari et al. 2020): holds the optimizer
// state of, and updates. Pure functions: exchange, optimizer, checkpoints and the planner use the same ones.
//
// The flat buffers (spec/flat_layout.h) are cut into units: what is exchanged at once. Every rank that shares the
// buffers owns an equal part of every unit, a multiple of spec::kFlatAlignment elements; its shard is these parts one
// after the other.
#pragma once

#include <cstdint>
#include <vector>

#include "spec/flat_layout.h"

namespace espalier::plan {

using spec::ZeroStage;

struct ZeroShape {
  ZeroStage stage = ZeroStage::kNone;
  int64_t num_ranks = 1;                      // that share the buffers: data * context
  int64_t unit_elements = int64_t{10} << 20;  // of a unit at most, up to stage 1: 40 MiB of fp32
};

// Elements [begin, end) of the flat buffers.
struct ZeroUnit {
  bool replicated = false, use_is_split = false;  // as the section's
  std::vector<int64_t> stages;                    // likewise
  size_t section = 0;                             // the first that it has a part of
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
};

// In the order of the buffers; they cover them. Up to stage 1 units of one size, whatever the depth; from stage 2 on
// one unit per section, because the buffers of a section come and go together. CHECKs that the layout was made for the
// number of ranks.
std::vector<ZeroUnit> zero_units(const spec::FlatLayout& layout, const ZeroShape& shape);

// What a rank owns of a unit, as elements of the flat buffers; all of it at stage 0.
spec::IndexRange zero_part(const ZeroUnit& unit, const ZeroShape& shape, int64_t rank);

// Elements of each rank's shard, padding included.
int64_t zero_shard_size(const spec::FlatLayout& layout, const ZeroShape& shape);

// A run of one parameter's local elements that a rank owns.
struct ZeroPiece {
  int64_t param = 0;        // number in the list
  int64_t param_begin = 0;  // first element, counted in the parameter
  int64_t shard_begin = 0;  // the same, counted in the rank's shard
  int64_t count = 0;
  bool operator==(const ZeroPiece&) const = default;
};

// The pieces that a rank owns, by parameter in the order of the list; what is together in both is one piece. The
// pieces of all ranks cover every element of every parameter once (at stage 0: those of each rank).
std::vector<ZeroPiece> zero_pieces(const spec::FlatLayout& layout, const ZeroShape& shape, int64_t rank);

}  // namespace espalier::plan
