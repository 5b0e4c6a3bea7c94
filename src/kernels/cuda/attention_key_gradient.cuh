// Gradients of attention's keys and values on tensor cores, as attention.cu's: a block has a tile of keys of one group,
// and goes over the tiles of queries that see some of it, of one query head of the group after the other.
#pragma once

#include "kernels/cuda/attention_blocks.cuh"

namespace espalier::cuda {

// Statistics of a tile's queries, which come with it.
template <int kN>
struct ColumnStats {
  static constexpr int kBytes = 2 * kN * 4;
  const float *log_sum_exps, *row_dots;

  __device__ explicit ColumnStats(const char* memory)
      : log_sum_exps(reinterpret_cast<const float*>(memory)), row_dots(log_sum_exps + kN) {}
  // Threads 0 .. 2 kN - 1 of the block have a copy each.
  __device__ void begin_copy(const Pair& pair, const float* dots, int first_query) const {
    const int number = static_cast<int>(threadIdx.x), query = first_query + number % kN;
    if (number >= 2 * kN) return;
    const float* const from = number < kN ? pair.problem.log_sum_exp : dots;
    const bool present = query < pair.problem.num_queries;
    copy_async_4(shared_address(log_sum_exps + number), present ? from + pair.stats(query) : from, present);
  }
  __device__ float log_sum_exp(int, int n, int e) const {
    const float value = log_sum_exps[ScorePlace<false, 1, kN>::column(n, e)];
    return value == -INFINITY ? 0 : value;  // it sees nothing
  }
  __device__ float row_dot(int, int n, int e) const { return row_dots[ScorePlace<false, 1, kN>::column(n, e)]; }
};

// The tiles of queries that see some of a tile of keys: of one member of the group after the other.
template <class Tiles>
struct QueryTiles {
  static constexpr int kN = Tiles::kN;
  int first_key, begin;  // begin: a query before which none sees any, as causality alone tells
  int member = 0, first_query = 0;
  bool sees_any = false, sees_all = false;  // of this warp's keys

  __device__ QueryTiles(const Pair& pair, int first_key) : first_key(first_key) {
    const bool from_own = pair.problem.causal && pair.problem.last_key == nullptr;
    begin = from_own ? max(first_key - static_cast<int>(pair.before), 0) / kN * kN : 0;
    first_query = begin;
    find(pair);
  }
  __device__ bool at_end(const AttentionProblem& problem) const { return member >= problem.members; }
  __device__ void advance(const Pair& pair) {
    first_query += kN;
    find(pair);
  }
  // The first one from this on.
  __device__ void find(const Pair& pair) {
    for (; !at_end(pair.problem); first_query += kN) {
      if (first_query >= pair.problem.num_queries) {
        ++member;
        first_query = begin - kN;
        continue;
      }
      const KeysOfQueries seen = keys_of_queries<kN>(pair, first_query);
      if (seen.any.first >= first_key + Tiles::kRows || seen.any.last < first_key) continue;
      const int own_key = first_key + Tiles::first_row(), last_own = own_key + Tiles::kRowsOfWarp - 1;
      sees_any = seen.any.first <= last_own && seen.any.last >= own_key;
      sees_all = seen.all.first <= own_key && seen.all.last >= last_own;
      return;
    }
  }
};

template <class T, class Tiles, bool kBias>
__global__ void __launch_bounds__(Tiles::kThreads, Tiles::kBlocks)
    tensor_key_gradient_kernel(AttentionProblem problem, AttentionGradients gradients, const float* row_dots,
                               TileOrder order) {
  constexpr int kM = Tiles::kM, kN = Tiles::kN;
  constexpr int kStageBytes = 2 * Tiles::OtherTile::kBytes;
  int group, tile;
  order.place(blockIdx.x, &group, &tile);
  const Pair first_member = pair_of(problem, group * problem.members);
  const int first_key = tile * Tiles::kRows, own_key = first_key + Tiles::first_row();
  const int pieces = pieces_of(problem);
  char* const memory = reinterpret_cast<char*>(shared_memory());
  const typename Tiles::OwnTile keys(memory), values(memory + Tiles::OwnTile::kBytes);
  char* const others = memory + 2 * Tiles::OwnTile::kBytes;
  const auto queries_at = [&](int stage) { return typename Tiles::OtherTile(others + stage * kStageBytes); };
  const auto d_results_at = [&](int stage) {
    return typename Tiles::OtherTile(others + stage * kStageBytes + Tiles::OtherTile::kBytes);
  };
  const auto stats_at = [&](int stage) {
    return ColumnStats<kN>(others + 2 * kStageBytes + stage * ColumnStats<kN>::kBytes);
  };
  const StoredGroup stored(others + 2 * kStageBytes + 2 * ColumnStats<kN>::kBytes, first_member);
  const auto begin_copies = [&](int stage, const Pair& pair, int first_query) {
    copy_tile<T, Tiles::kThreads>(queries_at(stage), pair, problem.query, first_query, problem.num_queries);
    copy_tile<T, Tiles::kThreads>(d_results_at(stage), pair, gradients.result, first_query, problem.num_queries);
    stats_at(stage).begin_copy(pair, row_dots, first_query);
    commit_copies();
  };
  copy_tile<T, Tiles::kThreads>(keys, first_member, problem.key, first_key, first_member.num_keys);
  copy_tile<T, Tiles::kThreads>(values, first_member, problem.value, first_key, first_member.num_keys);
  commit_copies();
  typename Tiles::Sums d_keys = {}, d_values = {};
  QueryTiles<Tiles> next(first_member, first_key);
  if (!next.at_end(problem)) begin_copies(0, first_member, next.first_query);  // all members see the same
  __syncthreads();
  for (int stage = 0; !next.at_end(problem); stage ^= 1) {
    const int member = next.member, first_query = next.first_query;
    const bool sees_any = next.sees_any, sees_all = next.sees_all;
    next.advance(stored.pair(problem, member));
    wait_for_copies<0>();
    __syncthreads();  // also: the other stage has been read
    if (!next.at_end(problem)) begin_copies(stage ^ 1, stored.pair(problem, next.member), next.first_query);
    if (!sees_any) continue;
    const Pair pair = stored.pair(problem, member);
    const ScorePlace<false, kM, kN> place{first_query, own_key};
    KeptScores<false, kM, kN> kept;
    if (problem.dropout) kept = KeptScores<false, kM, kN>(pair, place);
    typename Tiles::ScoresOfWarp scores, d_scores;
    multiply<T, kM, kN>(scores, keys, Tiles::first_row(), queries_at(stage), pieces);
    multiply<T, kM, kN>(d_scores, values, Tiles::first_row(), d_results_at(stage), pieces);
    to_score_gradients<kBias, false, kM, kN>(scores, d_scores, pair, place, kept, stats_at(stage), sees_all);
    RoundedFragments<kM, kN> rounded;
    round<T, kM, kN>(rounded, scores);
    add_products<T, kM, kN, Tiles::kOwn>(d_values, rounded, d_results_at(stage), Tiles::first_feature(), pieces);
    round<T, kM, kN>(rounded, d_scores);
    add_products<T, kM, kN, Tiles::kOwn>(d_keys, rounded, queries_at(stage), Tiles::first_feature(), pieces);
  }
  wait_for_copies<0>();
  __syncthreads();
  put_rows<T, kM, Tiles::kOwn>(keys, Tiles::first_row(), Tiles::first_feature(), d_keys, problem.scale);
  put_rows<T, kM, Tiles::kOwn>(values, Tiles::first_row(), Tiles::first_feature(), d_values,
                               problem.dropout ? problem.keep_scale : 1);
  __syncthreads();
  const Pair pair = stored.pair(problem, 0);
  write_tile<T, Tiles::kThreads>(keys, pair, gradients.key, first_key, pair.num_keys);
  write_tile<T, Tiles::kThreads>(values, pair, gradients.value, first_key, pair.num_keys);
}

template <class T, class Tiles, bool kBias>
void launch_key_gradient(const AttentionProblem& problem, const AttentionGradients& gradients, const float* row_dots,
                         Stream stream) {
  const TileOrder order = tile_order(problem, problem.batch * problem.groups, 1,
                                     num_blocks(problem.num_keys, Tiles::kRows), problem.members * problem.num_queries,
                                     /*last_tiles_first=*/false);
  const int bytes = 2 * Tiles::OwnTile::kBytes + 4 * Tiles::OtherTile::kBytes + 2 * ColumnStats<Tiles::kN>::kBytes +
                    StoredGroup::kBytes;
  launch("attention_key_gradient_on_tensor_cores", tensor_key_gradient_kernel<T, Tiles, kBias>,
         {order.blocks(), Tiles::kThreads, bytes, stream}, problem, gradients, row_dots, order);
}

template <class T>
void launch_key_gradient(const AttentionProblem& problem, const AttentionGradients& gradients, const float* row_dots,
                         Stream stream) {
  using Large = AttentionTiles<256, 1, 32, 4, 2>;
  if (has_bias(problem))
    with_tiles<AttentionTiles<64, 1, 64>, AttentionTiles<128, 1, 32>, Large>(problem, [&](auto tiles) {
      launch_key_gradient<T, decltype(tiles), true>(problem, gradients, row_dots, stream);
    });
  else
    with_tiles<AttentionTiles<64, 1, 64>, AttentionTiles<128, 1, 64>, Large>(problem, [&](auto tiles) {
      launch_key_gradient<T, decltype(tiles), false>(problem, gradients, row_dots, stream);
    });
}

}  // namespace espalier::cuda
