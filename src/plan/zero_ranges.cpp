#include "plan/zero_ranges.h"

#include <algorithm>

namespace espalier::plan {

int64_t zero_shard_size(int64_t flat_size, int64_t num_ranks) {
  return spec::round_up_flat((flat_size + num_ranks - 1) / num_ranks);
}

int64_t zero_padded_size(int64_t flat_size, int64_t num_ranks) {
  return zero_shard_size(flat_size, num_ranks) * num_ranks;
}

spec::IndexRange zero_range(int64_t flat_size, int64_t num_ranks, int64_t rank) {
  const int64_t size = zero_shard_size(flat_size, num_ranks);
  return {rank * size, (rank + 1) * size};
}

std::vector<ZeroPiece> zero_pieces(const spec::FlatLayout& layout, int64_t num_ranks, int64_t rank) {
  const spec::IndexRange range = zero_range(layout.size, num_ranks, rank);
  std::vector<ZeroPiece> pieces;
  for (size_t param = 0; param < layout.offsets.size(); ++param) {
    const int64_t offset = layout.offsets[param];
    const int64_t begin = std::max(offset, range.begin), end = std::min(offset + layout.counts[param], range.end);
    if (begin < end) pieces.push_back({static_cast<int64_t>(param), begin - offset, begin - range.begin, end - begin});
  }
  return pieces;
}

}  // namespace espalier::plan
