// Attention's forward pass on tensor cores (Dao 2023), as attention.cu's: a block has a tile of queries of one head and
// goes over the tiles of keys that it sees. The sums of probabilities are of fp32 ones, before the dropout; the second
// product takes them rounded to the type of the values.
#pragma once

#include "kernels/cuda/attention_blocks.cuh"

namespace espalier::cuda {

// The running softmax of a warp's rows, a lane's part of the sums.
template <int kM, int kN>
struct RowSoftmax {
  float largest[kM][2], sum[kM][2];

  __device__ RowSoftmax() {
    ESPALIER_UNROLL
    for (int m = 0; m < kM; ++m) {
      ESPALIER_UNROLL
      for (int half = 0; half < 2; ++half) {
        largest[m][half] = -INFINITY;
        sum[m][half] = 0;
      }
    }
  }
  // Scores times `factor`, which is positive, are exponents; they become probabilities by the largest so far. `result`
  // comes to the same scale.
  template <int kOwn>
  __device__ void add(Fragments<kM, kN>& scores, float factor, Fragments<kM, kOwn>& result) {
    ESPALIER_UNROLL
    for (int m = 0; m < kM; ++m) {
      ESPALIER_UNROLL
      for (int half = 0; half < 2; ++half) {
        float in_tile = scores[m][0][half * 2];
        ESPALIER_UNROLL
        for (int n = 0; n < kN / 8; ++n)
          in_tile = fmaxf(in_tile, fmaxf(scores[m][n][half * 2], scores[m][n][half * 2 + 1]));
        in_tile = fmaxf(in_tile, __shfl_xor_sync(kAllLanes, in_tile, 1));
        in_tile = fmaxf(in_tile, __shfl_xor_sync(kAllLanes, in_tile, 2));
        const float next = fmaxf(largest[m][half], in_tile * factor);
        const float base = next == -INFINITY ? 0 : next;  // nothing seen yet: all probabilities are 2^-inf
        const float rescale = exp2_fast(largest[m][half] - base);
        largest[m][half] = next;
        float added = 0;
        ESPALIER_UNROLL
        for (int n = 0; n < kN / 8; ++n) {
          ESPALIER_UNROLL
          for (int e = half * 2; e < half * 2 + 2; ++e) {
            scores[m][n][e] = exp2_fast(fmaf(scores[m][n][e], factor, -base));
            added += scores[m][n][e];
          }
        }
        sum[m][half] = fmaf(sum[m][half], rescale, added);
        ESPALIER_UNROLL
        for (int n = 0; n < kOwn / 8; ++n) {
          result[m][n][half * 2] *= rescale;
          result[m][n][half * 2 + 1] *= rescale;
        }
      }
    }
  }
  __device__ void finish() {
    ESPALIER_UNROLL
    for (int m = 0; m < kM; ++m) {
      ESPALIER_UNROLL
      for (int half = 0; half < 2; ++half) {
        sum[m][half] += __shfl_xor_sync(kAllLanes, sum[m][half], 1);
        sum[m][half] += __shfl_xor_sync(kAllLanes, sum[m][half], 2);
      }
    }
  }
};

// The largest logits of a warp's rows, a lane's part, where they are wanted.
template <int kM, int kN>
struct RowLogits {
  float largest[kM][2];

  __device__ RowLogits() {
    ESPALIER_UNROLL
    for (int m = 0; m < kM; ++m) largest[m][0] = largest[m][1] = -INFINITY;
  }
  __device__ void add(Fragments<kM, kN> products, const Pair& pair, const ScorePlace<true, kM, kN>& place) {
    const SeenByQueries<kM * 16> seen(pair, place.first_query);
    place.for_each([&](int m, int n, int e) { products[m][n][e] *= pair.problem.scale; });
    seen.for_each_hidden(place, [&](int m, int n, int e) { products[m][n][e] = -INFINITY; });
    place.for_each([&](int m, int n, int e) { largest[m][e / 2] = fmaxf(largest[m][e / 2], products[m][n][e]); });
  }
};

// Keys and values that are rows of the problem's operands.
template <class T>
struct KeysInRows {
  const AttentionProblem& problem;

  template <int kThreadsOfBlock, class Tile>
  __device__ void begin_copies(const Tile& keys, const Tile& values, const Pair& pair, int first_key) const {
    copy_tile<T, kThreadsOfBlock>(keys, pair, problem.key, first_key, pair.num_keys);
    copy_tile<T, kThreadsOfBlock>(values, pair, problem.value, first_key, pair.num_keys);
  }
};

// Of the queries from first_query on, a tile of them. `source` begins to copy tiles of keys and values; zeros beyond
// the last key. `problem`: the pair's, or, where that is a kernel's parameter, the parameter: ptxas then spills less.
template <class T, class Tiles, bool kBias, class Source>
__device__ inline void forward_tile(const AttentionProblem& problem, const Pair& pair, int first_query,
                                    const Source& source) {
  constexpr int kM = Tiles::kM, kN = Tiles::kN;
  using Place = ScorePlace<true, kM, kN>;
  const int own_query = first_query + Tiles::first_row();
  const int pieces = pieces_of(problem);
  char* const memory = reinterpret_cast<char*>(shared_memory());
  const typename Tiles::OwnTile queries(memory);
  const auto keys_at = [&](int stage) {
    return typename Tiles::OtherTile(memory + Tiles::OwnTile::kBytes + stage * 2 * Tiles::OtherTile::kBytes);
  };
  const auto values_at = [&](int stage) {
    return typename Tiles::OtherTile(memory + Tiles::OwnTile::kBytes + (stage * 2 + 1) * Tiles::OtherTile::kBytes);
  };
  const auto begin_copies = [&](int stage, int first_key) {
    source.template begin_copies<Tiles::kThreads>(keys_at(stage), values_at(stage), pair, first_key);
    commit_copies();
  };
  const Keys of_block = keys_of_queries<Tiles::kRows>(pair, first_query).any;
  const KeysOfWarps<Tiles> of_warp(memory + Tiles::OwnTile::kBytes + 4 * Tiles::OtherTile::kBytes, pair, own_query);
  const int begin = of_block.first / kN * kN, end = of_block.last + 1;
  copy_tile<T, Tiles::kThreads>(queries, pair, problem.query, first_query, problem.num_queries);
  commit_copies();
  if (begin < end) begin_copies(0, begin);
  RowSoftmax<kM, kN> softmax;
  RowLogits<kM, kN> logits;
  typename Tiles::Sums sums = {};
  int stage = 0;
  for (int first_key = begin; first_key < end; first_key += kN, stage ^= 1) {
    wait_for_copies<0>();
    __syncthreads();  // also: the other stage has been read
    if (first_key + kN < end) begin_copies(stage ^ 1, first_key + kN);
    if (!of_warp.sees_any(first_key)) continue;
    const Place place{own_query, first_key};
    KeptScores<true, kM, kN> kept;
    if (problem.dropout) kept = KeptScores<true, kM, kN>(pair, place);
    typename Tiles::ScoresOfWarp scores;
    multiply<T, kM, kN>(scores, queries, Tiles::first_row(), keys_at(stage), pieces);
    if constexpr (kBias) {
      if (problem.max_logits != nullptr) logits.add(scores, pair, place);
      add_bias<true, kM, kN>(scores, pair, place);
    }
    if (!of_warp.sees_all(first_key))
      SeenByQueries<Tiles::kRowsOfWarp>(pair, own_query).for_each_hidden(place, [&](int m, int n, int e) {
        scores[m][n][e] = -INFINITY;
      });
    softmax.template add<Tiles::kOwn>(scores, exponent_factor<kBias>(problem), sums);
    if (problem.dropout)
      place.for_each([&](int m, int n, int e) { scores[m][n][e] = kept.has(m, n, e) ? scores[m][n][e] : 0; });
    RoundedFragments<kM, kN> probabilities;
    round<T, kM, kN>(probabilities, scores);
    add_products<T, kM, kN, Tiles::kOwn>(sums, probabilities, values_at(stage), Tiles::first_feature(), pieces);
  }
  softmax.finish();
  const SeenByQueries<Tiles::kRowsOfWarp> seen(pair, own_query);
  float factors[kM][2];
  ESPALIER_UNROLL
  for (int m = 0; m < kM; ++m) {
    ESPALIER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int query = own_query + Place::row(m, half * 2);
      const bool none = seen.of(Place::row(m, half * 2)).count == 0;
      factors[m][half] = none ? 0 : (problem.dropout ? problem.keep_scale : 1) / softmax.sum[m][half];
      float of_query = fmaxf(logits.largest[m][half], __shfl_xor_sync(kAllLanes, logits.largest[m][half], 1));
      of_query = fmaxf(of_query, __shfl_xor_sync(kAllLanes, of_query, 2));
      if (threadIdx.x % 4 > 0 || Tiles::first_feature() > 0 || query >= problem.num_queries) continue;
      if (problem.max_logits != nullptr) problem.max_logits[pair.stats(query)] = of_query;
      if (problem.log_sum_exp != nullptr)
        problem.log_sum_exp[pair.stats(query)] =
            none ? -INFINITY : softmax.largest[m][half] + log2f(softmax.sum[m][half]);
    }
  }
  wait_for_copies<0>();
  __syncthreads();
  put_rows<T, kM, Tiles::kOwn>(queries, Tiles::first_row(), Tiles::first_feature(), sums, factors);
  __syncthreads();
  write_tile<T, Tiles::kThreads>(queries, pair, problem.result, first_query, problem.num_queries);
}

template <class Tiles>
constexpr int forward_shared_bytes() {
  return Tiles::OwnTile::kBytes + 4 * Tiles::OtherTile::kBytes + KeysOfWarps<Tiles>::kBytes;
}

// body(AttentionTiles, kBias as a constant)
template <class Body>
void with_forward_tiles(const AttentionProblem& problem, const Body& body) {
  using Large = AttentionTiles<256, 1, 32>;
  if (has_bias(problem) || problem.max_logits != nullptr)
    with_tiles<AttentionTiles<64, 2, 64>, AttentionTiles<128, 2, 32>, Large>(
        problem, [&](auto tiles) { body(tiles, std::true_type()); });
  else
    with_tiles<AttentionTiles<64, 1, 64, 4, 1, 3>, AttentionTiles<128, 2, 64>, Large>(
        problem, [&](auto tiles) { body(tiles, std::false_type()); });
}

template <class T, class Tiles, bool kBias>
__global__ void __launch_bounds__(Tiles::kThreads, Tiles::kBlocks)
    tensor_forward_kernel(AttentionProblem problem, TileOrder order) {
  int head, tile;
  order.place(blockIdx.x, &head, &tile);
  forward_tile<T, Tiles, kBias>(problem, pair_of(problem, head), tile * Tiles::kRows, KeysInRows<T>{problem});
}

template <class T>
void launch_attention_forward(const AttentionProblem& problem, Stream stream) {
  with_forward_tiles(problem, [&](auto tiles, auto bias) {
    using Tiles = decltype(tiles);
    const TileOrder order = tile_order(problem, problem.heads() * problem.batch, problem.members,
                                       num_blocks(problem.num_queries, Tiles::kRows), problem.num_keys, problem.causal);
    launch("attention_forward_on_tensor_cores", tensor_forward_kernel<T, Tiles, bias>,
           {order.blocks(), Tiles::kThreads, forward_shared_bytes<Tiles>(), stream}, problem, order);
  });
}

}  // namespace espalier::cuda
