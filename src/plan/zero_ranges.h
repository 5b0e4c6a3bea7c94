// Which elements of a flat buffer each data-parallel rank owns under ZeRO, and which pieces of parameters those are.
// Pure functions.
//
// The buffer (spec/flat_layout.h) is padded so that all ranks own equally many elements, a multiple of
// spec::kFlatAlignment; only the last ones may own padding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/flat_layout.h"

namespace espalier::plan {

// Elements that each rank owns, padding included.
int64_t zero_shard_size(int64_t flat_size, int64_t num_ranks);
// The buffer with its padding: num_ranks shards.
int64_t zero_padded_size(int64_t flat_size, int64_t num_ranks);
// Elements [begin, end) of the padded buffer that a rank owns.
spec::IndexRange zero_range(int64_t flat_size, int64_t num_ranks, int64_t rank);

// A run of one parameter's local elements inside a rank's shard.
struct ZeroPiece {
  int64_t param = 0;        // number in the list
  int64_t param_begin = 0;  // first element, counted in the parameter
  int64_t shard_begin = 0;  // the same, counted in the rank's shard
  int64_t count = 0;
  bool operator==(const ZeroPiece&) const = default;
};

// The pieces that a rank owns, in order. The pieces of all ranks cover every element of every parameter once.
std::vector<ZeroPiece> zero_pieces(const spec::FlatLayout& layout, int64_t num_ranks, int64_t rank);

}  // namespace espalier::plan
