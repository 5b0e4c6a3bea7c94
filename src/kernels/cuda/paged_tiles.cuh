// Attention to keys and values in pages on tensor cores, of tokens in tiles (DeviceTokens): attention_forward.cuh's
// tiles of queries, whose keys and values come from the pages of one sequence. `as_rows` is the problem as those know
// it: one row of the batch with all tokens as its queries. Its keys and values are the rows of a page, at the stride of
// a group; which page, and what a token sees, the tokens say.
#pragma once

#include "kernels/cuda/attention_forward.cuh"
#include "kernels/cuda/paged_problem.cuh"

namespace espalier::cuda {

using kernels::DeviceTokens;

// What one sequence has in pages, of one group.
template <class T>
struct KeysInPages {
  const T *keys, *values;  // of the group, of page 0
  const int32_t* pages;
  int page_bits, page_elements;  // of all groups

  // As copy_tile(); what a page holds beyond the last key is not read.
  template <int kThreadsOfBlock, class Tile>
  __device__ void begin_copies(const Tile& to_keys, const Tile& to_values, const Pair& pair, int first_key) const {
    constexpr int kAccesses = Tile::kRowBytes / 16, kRowsAtOnce = kThreadsOfBlock / kAccesses;
    static_assert(kThreadsOfBlock % kAccesses == 0 && Tile::kRows % kRowsAtOnce == 0);
    const int thread = thread_read_anew(), access = thread % kAccesses, first_row = thread / kAccesses;
    const int head_size = static_cast<int>(pair.problem.head_size);
    if (access * 8 >= (head_size + kPiece - 1) / kPiece * kPiece) return;
    const int end = access * 8 < head_size ? pair.num_keys : 0, in_page = (1 << page_bits) - 1;
    ESPALIER_UNROLL_4
    for (int row = first_row; row < first_row + Tile::kRows; row += kRowsAtOnce) {
      const int key = min(first_key + row, pair.num_keys - 1);
      const int64_t from = int64_t{pages[key >> page_bits]} * page_elements + (key & in_page) * head_size + access * 8;
      const int to = to_keys.offset(row, access);
      copy_async_16(to_keys.begin + to, keys + from, first_key + row < end);
      copy_async_16(to_values.begin + to, values + from, first_key + row < end);
    }
  }
};

// One block for each query head (x) and part of a tile (y) that it has rows for.
template <class T, class Tiles, bool kBias>
__global__ void __launch_bounds__(Tiles::kThreads, Tiles::kBlocks)
    tensor_paged_kernel(AttentionProblem as_rows, PagedProblem problem) {
  constexpr int kParts = static_cast<int>(DeviceTokens::kTile) / Tiles::kRows;
  static_assert(kParts * Tiles::kRows == DeviceTokens::kTile);
  const DeviceTokens& tokens = problem.tokens;
  const DeviceTokens::Tile tile = tokens.tiles[blockIdx.y / kParts];
  const int first_query = static_cast<int>(blockIdx.y % kParts) * Tiles::kRows;
  if (first_query >= tile.count) return;
  const int head = static_cast<int>(blockIdx.x), members = static_cast<int>(as_rows.members);
  Pair pair{as_rows, 0, head / members, head % members, head, tokens.positions[tile.first], tile.num_keys};
  pair.problem.num_queries = tile.count;
  pair.problem.last_key = tokens.last_keys + tile.first;
  pair.problem.query.data = static_cast<T*>(as_rows.query.data) + tile.first * as_rows.query.position_stride;
  pair.problem.result.data = static_cast<T*>(as_rows.result.data) + tile.first * as_rows.result.position_stride;
  // So that the compiler leaves out what is never asked for.
  pair.problem.first_key = nullptr;
  pair.problem.dropout = false;
  pair.problem.log_sum_exp = pair.problem.max_logits = nullptr;
  const int64_t of_group = pair.group * as_rows.key.group_stride;
  const KeysInPages<T> source{.keys = static_cast<const T*>(as_rows.key.data) + of_group,
                              .values = static_cast<const T*>(as_rows.value.data) + of_group,
                              .pages = problem.pages_of(tile.first),
                              .page_bits = problem.page_bits,
                              .page_elements = static_cast<int>(as_rows.groups * as_rows.key.group_stride)};
  forward_tile<T, Tiles, kBias>(pair.problem, pair, first_query, source);
}

template <class T>
void launch_paged_tiles(const AttentionProblem& as_rows, const PagedProblem& problem, Stream stream) {
  with_forward_tiles(as_rows, [&](auto tiles, auto bias) {
    using Tiles = decltype(tiles);
    const int64_t parts = problem.tokens.num_tiles * DeviceTokens::kTile / Tiles::kRows;
    const dim3 grid(num_blocks(as_rows.heads(), 1), num_blocks(parts, 1));
    launch("paged_attention_on_tensor_cores", tensor_paged_kernel<T, Tiles, bias>,
           {grid, Tiles::kThreads, forward_shared_bytes<Tiles>(), stream}, as_rows, problem);
  });
}

}  // namespace espalier::cuda
