// Gradients of attention's queries on tensor cores, as attention.cu's: a block has a tile of queries of one head, and
// goes over the tiles of keys that it sees.
#pragma once

#include "kernels/cuda/attention_blocks.cuh"

namespace espalier::cuda {

// Statistics of a warp's rows, in shared memory for want of registers. They come with the first tile.
template <class Tiles>
struct RowStats {
  static constexpr int kBytes = 2 * Tiles::kRows * 4;
  const float *log_sum_exps, *row_dots;

  __device__ explicit RowStats(const char* memory)
      : log_sum_exps(reinterpret_cast<const float*>(memory)), row_dots(log_sum_exps + Tiles::kRows) {}
  // Every thread of the block calls it.
  __device__ void begin_copy(const Pair& pair, const float* dots, int first_query) const {
    for (int row = static_cast<int>(threadIdx.x); row < Tiles::kRows; row += Tiles::kThreads) {
      const int query = first_query + row;
      const bool present = query < pair.problem.num_queries;
      const int64_t place = present ? pair.stats(query) : 0;
      copy_async_4(shared_address(log_sum_exps + row), pair.problem.log_sum_exp + place, present);
      copy_async_4(shared_address(row_dots + row), dots + place, present);
    }
  }
  __device__ static int row(int m, int e) {
    return Tiles::first_row() + ScorePlace<true, Tiles::kM, Tiles::kN>::row(m, e);
  }
  __device__ float log_sum_exp(int m, int, int e) const {
    const float value = log_sum_exps[row(m, e)];
    return value == -INFINITY ? 0 : value;  // it sees nothing
  }
  __device__ float row_dot(int m, int, int e) const { return row_dots[row(m, e)]; }
};

template <class T, class Tiles, bool kBias>
__global__ void __launch_bounds__(Tiles::kThreads, Tiles::kBlocks)
    tensor_query_gradient_kernel(AttentionProblem problem, AttentionGradients gradients, const float* row_dots,
                                 TileOrder order) {
  constexpr int kM = Tiles::kM, kN = Tiles::kN;
  int head, tile;
  order.place(blockIdx.x, &head, &tile);
  const Pair pair = pair_of(problem, head);
  const int first_query = tile * Tiles::kRows, own_query = first_query + Tiles::first_row();
  const int pieces = pieces_of(problem);
  char* const memory = reinterpret_cast<char*>(shared_memory());
  const typename Tiles::OwnTile queries(memory), d_results(memory + Tiles::OwnTile::kBytes);
  char* const others = memory + 2 * Tiles::OwnTile::kBytes;
  const auto keys_at = [&](int stage) {
    return typename Tiles::OtherTile(others + stage * 2 * Tiles::OtherTile::kBytes);
  };
  const auto values_at = [&](int stage) {
    return typename Tiles::OtherTile(others + (stage * 2 + 1) * Tiles::OtherTile::kBytes);
  };
  const auto begin_copies = [&](int stage, int first_key) {
    copy_tile<T, Tiles::kThreads>(keys_at(stage), pair, problem.key, first_key, pair.num_keys);
    copy_tile<T, Tiles::kThreads>(values_at(stage), pair, problem.value, first_key, pair.num_keys);
    commit_copies();
  };
  const Keys of_block = keys_of_queries<Tiles::kRows>(pair, first_query).any;
  const RowStats<Tiles> stats(others + 4 * Tiles::OtherTile::kBytes);
  const KeysOfWarps<Tiles> of_warp(others + 4 * Tiles::OtherTile::kBytes + RowStats<Tiles>::kBytes, pair, own_query);
  const int begin = of_block.first / kN * kN, end = of_block.last + 1;
  copy_tile<T, Tiles::kThreads>(queries, pair, problem.query, first_query, problem.num_queries);
  copy_tile<T, Tiles::kThreads>(d_results, pair, gradients.result, first_query, problem.num_queries);
  stats.begin_copy(pair, row_dots, first_query);
  commit_copies();
  if (begin < end) begin_copies(0, begin);
  typename Tiles::Sums sums = {};
  int stage = 0;
  for (int first_key = begin; first_key < end; first_key += kN, stage ^= 1) {
    wait_for_copies<0>();
    __syncthreads();  // also: the other stage has been read
    if (first_key + kN < end) begin_copies(stage ^ 1, first_key + kN);
    if (!of_warp.sees_any(first_key)) continue;
    const ScorePlace<true, kM, kN> place{own_query, first_key};
    KeptScores<true, kM, kN> kept;
    if (problem.dropout) kept = KeptScores<true, kM, kN>(pair, place);
    typename Tiles::ScoresOfWarp scores, d_scores;
    multiply<T, kM, kN>(scores, queries, Tiles::first_row(), keys_at(stage), pieces);
    multiply<T, kM, kN>(d_scores, d_results, Tiles::first_row(), values_at(stage), pieces);
    to_score_gradients<kBias, true, kM, kN>(scores, d_scores, pair, place, kept, stats, of_warp.sees_all(first_key));
    RoundedFragments<kM, kN> rounded;
    round<T, kM, kN>(rounded, d_scores);
    add_products<T, kM, kN, Tiles::kOwn>(sums, rounded, keys_at(stage), Tiles::first_feature(), pieces);
  }
  wait_for_copies<0>();
  __syncthreads();
  put_rows<T, kM, Tiles::kOwn>(queries, Tiles::first_row(), Tiles::first_feature(), sums, problem.scale);
  __syncthreads();
  write_tile<T, Tiles::kThreads>(queries, pair, gradients.query, first_query, problem.num_queries);
}

template <class T, class Tiles, bool kBias>
void launch_query_gradient(const AttentionProblem& problem, const AttentionGradients& gradients, const float* row_dots,
                           Stream stream) {
  const TileOrder order = tile_order(problem, problem.heads() * problem.batch, problem.members,
                                     num_blocks(problem.num_queries, Tiles::kRows), problem.num_keys, problem.causal);
  const int bytes =
      2 * Tiles::OwnTile::kBytes + 4 * Tiles::OtherTile::kBytes + RowStats<Tiles>::kBytes + KeysOfWarps<Tiles>::kBytes;
  launch("attention_query_gradient_on_tensor_cores", tensor_query_gradient_kernel<T, Tiles, kBias>,
         {order.blocks(), Tiles::kThreads, bytes, stream}, problem, gradients, row_dots, order);
}

template <class T>
void launch_query_gradient(const AttentionProblem& problem, const AttentionGradients& gradients, const float* row_dots,
                           Stream stream) {
  using Large = AttentionTiles<256, 1, 32, 4, 2>;
  if (has_bias(problem))
    with_tiles<AttentionTiles<64, 2, 32>, AttentionTiles<128, 1, 64>, Large>(problem, [&](auto tiles) {
      launch_query_gradient<T, decltype(tiles), true>(problem, gradients, row_dots, stream);
    });
  else
    with_tiles<AttentionTiles<64, 1, 64, 4, 1, 3>, AttentionTiles<128, 2, 32>, Large>(problem, [&](auto tiles) {
      launch_query_gradient<T, decltype(tiles), false>(problem, gradients, row_dots, stream);
    });
}

}  // namespace espalier::cuda
