// Which block has which tile of which head, and what a kernel's tiles are, for attention on tensor cores.
#pragma once

#include <algorithm>

#include "kernels/cuda/attention_scores.cuh"
#include "kernels/cuda/attention_tensor_cores.h"

namespace espalier::cuda {

// Tiles of a kernel whose own side stays in shared memory and whose other side goes by, two tiles of it at a time.
// Each warp has kM blocks of 16 rows of its own side; where kParts > 1, as many warps share those, compute the same
// scores, and have a part of the features each.
template <int kFeatures_, int kM_, int kN_, int kWarps_ = 4, int kParts_ = 1, int kBlocks_ = 2>
struct AttentionTiles {
  static constexpr int kFeatures = kFeatures_, kM = kM_, kN = kN_, kWarps = kWarps_, kParts = kParts_;
  static constexpr int kBlocks = kBlocks_;  // of a multiprocessor, as far as registers go
  static constexpr int kThreads = kWarps * kWarp, kRowsOfWarp = kM * 16, kRows = kWarps / kParts * kRowsOfWarp;
  static constexpr int kOwn = kFeatures / kParts;  // features of a warp's sums
  using OwnTile = SharedTile<kRows, kFeatures>;
  using OtherTile = SharedTile<kN, kFeatures>;
  using ScoresOfWarp = Fragments<kM, kN>;
  using Sums = Fragments<kM, kOwn>;

  __device__ static int first_row() { return static_cast<int>(threadIdx.x) / kWarp / kParts * kRowsOfWarp; }
  __device__ static int first_feature() { return static_cast<int>(threadIdx.x) / kWarp % kParts * kOwn; }
};

// The first query head of a block's group, in shared memory for want of registers: valid after the next barrier.
struct StoredGroup {
  static constexpr int kBytes = 16;
  int* numbers;

  __device__ StoredGroup(char* memory, const Pair& first) : numbers(reinterpret_cast<int*>(memory)) {
    if (threadIdx.x > 0) return;
    numbers[0] = first.row;
    numbers[1] = first.group;
    numbers[2] = first.before;
    numbers[3] = first.num_keys;
  }
  __device__ Pair pair(const AttentionProblem& problem, int member) const {
    const int group = numbers[1];
    return {problem,    numbers[0], group, member, group * static_cast<int>(problem.members) + member,
            numbers[2], numbers[3]};
  }
};

// What the queries of each warp see, in shared memory for want of registers: valid after the next barrier.
template <class Tiles>
struct KeysOfWarps {
  static constexpr int kBytes = Tiles::kWarps * static_cast<int>(sizeof(KeysOfQueries));
  KeysOfQueries* of_warp;

  __device__ KeysOfWarps(char* memory, const Pair& pair, int own_query)
      : of_warp(reinterpret_cast<KeysOfQueries*>(memory) + threadIdx.x / kWarp) {
    const KeysOfQueries keys = keys_of_queries<Tiles::kRowsOfWarp>(pair, own_query);
    if (threadIdx.x % kWarp == 0) *of_warp = keys;
  }
  __device__ bool sees_any(int first_key) const {
    return first_key <= of_warp->any.last && first_key + Tiles::kN > of_warp->any.first;
  }
  __device__ bool sees_all(int first_key) const {
    return of_warp->all.first <= first_key && first_key + Tiles::kN - 1 <= of_warp->all.last;
  }
};

__device__ inline int pieces_of(const AttentionProblem& problem) {
  return (static_cast<int>(problem.head_size) + kPiece - 1) / kPiece;
}

// Blocks begin in the order of their numbers. Heads come in sections whose other sides fit in the L2 cache together;
// within a section, first the tiles with the most to do, of all heads.
struct TileOrder {
  unsigned heads, tiles, heads_of_section;
  bool last_tiles_first;

  __device__ void place(unsigned number, int* head, int* tile) const {
    const unsigned section = number / (heads_of_section * tiles), rest = number % (heads_of_section * tiles);
    const unsigned heads_here = min(heads_of_section, heads - section * heads_of_section);
    const unsigned in_order = rest / heads_here;
    *head = static_cast<int>(section * heads_of_section + rest % heads_here);
    *tile = static_cast<int>(last_tiles_first ? tiles - 1 - in_order : in_order);
  }
  unsigned blocks() const { return num_blocks(int64_t{heads} * tiles, 1); }
};

// `heads` heads, of which `sharing` that follow each other read the same other side: `positions` of it, two operands.
inline TileOrder tile_order(const AttentionProblem& problem, int64_t heads, int64_t sharing, int64_t tiles,
                            int64_t positions, bool last_tiles_first) {
  constexpr int64_t kCached = 16 << 20;
  const int64_t bytes = positions * problem.head_size * 2 * 2;
  const int64_t fitting = std::max<int64_t>(1, kCached / std::max<int64_t>(1, bytes)) * sharing;
  ESPALIER_CHECK(heads <= INT32_MAX && tiles <= INT32_MAX, heads, " heads of ", tiles, " tiles");
  return {static_cast<unsigned>(heads), static_cast<unsigned>(tiles), static_cast<unsigned>(std::min(heads, fitting)),
          last_tiles_first};
}

// body(AttentionTiles) of the one that has the problem's heads.
template <class Small, class Middle, class Large, class Body>
void with_tiles(const AttentionProblem& problem, const Body& body) {
  if (problem.head_size <= Small::kFeatures) return body(Small());
  if (problem.head_size <= Middle::kFeatures) return body(Middle());
  body(Large());
}

}  // namespace espalier::cuda
