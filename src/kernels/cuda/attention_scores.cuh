// What becomes of a warp's scores between the two products: bias and cap, what is not seen, what is dropped. Each is a
// pass over the fragments that is left out where the problem, or the tile, has none of it.
#pragma once

#include "kernels/cuda/attention_tiles.cuh"

namespace espalier::cuda {

// Where the fragments of a warp are: the query and the key of the first row and the first column. Rows are queries and
// columns are keys, or the other way round.
template <bool kQueriesAreRows, int kM, int kN>
struct ScorePlace {
  int first_query, first_key;

  __device__ static int row(int m, int e) { return m * 16 + threadIdx.x % kWarp / 4 + e / 2 * 8; }
  __device__ static int column(int n, int e) { return n * 8 + threadIdx.x % 4 * 2 + e % 2; }
  __device__ int query(int m, int n, int e) const { return first_query + (kQueriesAreRows ? row(m, e) : column(n, e)); }
  __device__ int key(int m, int n, int e) const { return first_key + (kQueriesAreRows ? column(n, e) : row(m, e)); }
  // body(m, n, e)
  template <class Body>
  __device__ static void for_each(const Body& body) {
    ESPALIER_UNROLL
    for (int m = 0; m < kM; ++m) {
      ESPALIER_UNROLL
      for (int n = 0; n < kN / 8; ++n) {
        ESPALIER_UNROLL
        for (int e = 0; e < 4; ++e) body(m, n, e);
      }
    }
  }
};

// The keys that a query sees, for a test by one comparison.
struct SeenKeys {
  int first;
  unsigned count;
  __device__ static SeenKeys of(const Keys& keys) {
    return {keys.first, keys.none() ? 0u : static_cast<unsigned>(keys.last - keys.first) + 1};
  }
  __device__ bool has(int key) const { return static_cast<unsigned>(key - first) < count; }
};

// What each query of a warp's fragments sees; a lane has every 32nd query, and tells the others when they ask.
template <int kQueries>
struct SeenByQueries {
  SeenKeys of_lane[(kQueries + kWarp - 1) / kWarp];

  __device__ SeenByQueries(const Pair& pair, int first_query) {
    ESPALIER_UNROLL
    for (int i = 0; i < (kQueries + kWarp - 1) / kWarp; ++i)
      of_lane[i] = SeenKeys::of(pair.keys_of(first_query + (i * kWarp + threadIdx.x % kWarp) % kQueries));
  }
  // Of a query, counted from the first, whose 32 is the same on all lanes. All lanes of the warp call it.
  __device__ SeenKeys of(int query) const {
    const SeenKeys& from = of_lane[query / kWarp];
    return {__shfl_sync(kAllLanes, from.first, query % kWarp), __shfl_sync(kAllLanes, from.count, query % kWarp)};
  }
  // body(m, n, e) where a query does not see a key; queries are rows.
  template <int kM, int kN, class Body>
  __device__ void for_each_hidden(const ScorePlace<true, kM, kN>& place, const Body& body) const {
    ESPALIER_UNROLL
    for (int m = 0; m < kM; ++m) {
      ESPALIER_UNROLL
      for (int half = 0; half < 2; ++half) {
        const SeenKeys seen = of(place.row(m, half * 2));
        ESPALIER_UNROLL
        for (int n = 0; n < kN / 8; ++n) {
          ESPALIER_UNROLL
          for (int e = half * 2; e < half * 2 + 2; ++e)
            if (!seen.has(place.key(m, n, e))) body(m, n, e);
        }
      }
    }
  }
  // Queries are columns.
  template <int kM, int kN, class Body>
  __device__ void for_each_hidden(const ScorePlace<false, kM, kN>& place, const Body& body) const {
    ESPALIER_UNROLL
    for (int n = 0; n < kN / 8; ++n) {
      ESPALIER_UNROLL
      for (int odd = 0; odd < 2; ++odd) {
        const SeenKeys seen = of(place.column(n, odd));
        ESPALIER_UNROLL
        for (int m = 0; m < kM; ++m) {
          ESPALIER_UNROLL
          for (int e = odd; e < 4; e += 2)
            if (!seen.has(place.key(m, n, e))) body(m, n, e);
        }
      }
    }
  }
};

// Which probabilities are kept, a bit for each of this lane's. One call of the generator decides on four keys of a
// query: each lane makes as many as it has fours of elements, and they tell each other. Made before the scores, so that
// its registers are free again by then; without dropout it is not read.
template <bool kQueriesAreRows, int kM, int kN>
class KeptScores;

// Columns are keys. In 16 rows by 16 keys, a query has four fours of keys, and four lanes have its row: lane % 4 is the
// number of the four.
template <int kM, int kN>
class KeptScores<true, kM, kN> {
 public:
  __device__ KeptScores() {}
  __device__ KeptScores(const Pair& pair, const ScorePlace<true, kM, kN>& place) {
    const int lane = threadIdx.x % kWarp, of_four = lane % 4;
    ESPALIER_UNROLL
    for (int m = 0; m < kM; ++m) {
      uint32_t bits = 0;
      ESPALIER_UNROLL_2
      for (int i = 0; i < kN / 8; ++i)  // 16 keys i / 2, half i % 2 of the rows
        bits |=
            pair.kept_of_four(place.first_query + place.row(m, i % 2 * 2), place.first_key / 4 + i / 2 * 4 + of_four)
            << (4 * i);
      bits_[m] = 0;
      ESPALIER_UNROLL
      for (int odd = 0; odd < 2; ++odd) {  // of even and of odd blocks of columns
        const uint32_t others = __shfl_sync(kAllLanes, bits, lane / 4 * 4 + odd * 2 + of_four / 2);
        bits_[m] |= (others >> (of_four % 2 * 2) & 0x33333333u) << (2 * odd);
      }
    }
  }
  __device__ bool has(int m, int n, int e) const {
    return (bits_[m] >> (4 * (n / 2 * 2 + e / 2) + n % 2 * 2 + e % 2) & 1) != 0;
  }

 private:
  uint32_t bits_[kM] = {};
};

// Rows are keys. In 16 keys by 8 queries, the four lanes that have the same columns of four rows that follow each other
// have four fours of keys: of the upper and the lower rows, by the even and by the odd column.
template <int kM, int kN>
class KeptScores<false, kM, kN> {
 public:
  __device__ KeptScores() {}
  __device__ KeptScores(const Pair& pair, const ScorePlace<false, kM, kN>& place) {
    const int lane = threadIdx.x % kWarp, e = lane / 4 % 4;
    ESPALIER_UNROLL
    for (int m = 0; m < kM; ++m) {
      const int group = place.first_key / 4 + m * 4 + lane / 16 + e / 2 * 2;
      uint32_t bits = 0;
      ESPALIER_UNROLL_2
      for (int n = 0; n < kN / 8; ++n)
        bits |= pair.kept_of_four(place.first_query + n * 8 + lane % 4 * 2 + e % 2, group) << (4 * n);
      bits_[m] = 0;
      ESPALIER_UNROLL
      for (int from = 0; from < 4; ++from) {
        const uint32_t others = __shfl_sync(kAllLanes, bits, lane / 16 * 16 + from * 4 + lane % 4);
        bits_[m] |= (others >> (lane / 4 % 4) & 0x11111111u) << from;
      }
    }
  }
  __device__ bool has(int m, int n, int e) const { return (bits_[m] >> (4 * n + e) & 1) != 0; }

 private:
  uint32_t bits_[kM] = {};
};

// Kernels that know only what most problems have leave more registers to it; kBias says that this is one of the others.
// Whether scores need more than the factor that exponent_factor() gives.
inline bool has_bias(const AttentionProblem& problem) {
  return problem.slopes != nullptr || problem.relative_bias != nullptr || problem.soft_cap != 0 || !(problem.scale > 0);
}
// What products, or after add_bias() scores, are multiplied by to be exponents; positive.
template <bool kBias>
__device__ float exponent_factor(const AttentionProblem& problem) {
  return kBias ? 1 : problem.scale * kLog2E;
}
template <bool kQueriesAreRows, int kM, int kN>
__device__ void add_bias(Fragments<kM, kN>& scores, const Pair& pair,
                         const ScorePlace<kQueriesAreRows, kM, kN>& place) {
  place.for_each([&](int m, int n, int e) {
    scores[m][n][e] = pair.biased(scores[m][n][e], place.query(m, n, e), place.key(m, n, e));
  });
}

// From products to what is multiplied next: `scores` are products q k, and become probabilities after the dropout (not
// scaled); `gradients` are products dO v, and become dS, with the slope of the cap. Stats: log_sum_exp(m, n, e) and
// row_dot(m, n, e) of an element's query.
template <bool kBias, bool kQueriesAreRows, int kM, int kN, class Stats>
__device__ void to_score_gradients(Fragments<kM, kN>& scores, Fragments<kM, kN>& gradients, const Pair& pair,
                                   const ScorePlace<kQueriesAreRows, kM, kN>& place,
                                   const KeptScores<kQueriesAreRows, kM, kN>& kept, const Stats& stats, bool all_seen) {
  const AttentionProblem& problem = pair.problem;
  if (problem.dropout)
    place.for_each([&](int m, int n, int e) {
      gradients[m][n][e] = kept.has(m, n, e) ? gradients[m][n][e] * problem.keep_scale : 0;
    });
  place.for_each([&](int m, int n, int e) { gradients[m][n][e] -= stats.row_dot(m, n, e); });
  if constexpr (kBias) {
    if (problem.soft_cap != 0)
      place.for_each([&](int m, int n, int e) { gradients[m][n][e] *= pair.cap_slope(scores[m][n][e]); });
    add_bias<kQueriesAreRows, kM, kN>(scores, pair, place);
  }
  if (!all_seen)
    SeenByQueries<kQueriesAreRows ? kM * 16 : kN>(pair, place.first_query)
        .for_each_hidden(place, [&](int m, int n, int e) {
          scores[m][n][e] = -INFINITY;
          gradients[m][n][e] = 0;
        });
  const float factor = exponent_factor<kBias>(problem);
  place.for_each([&](int m, int n, int e) {
    const float p = exp2_fast(fmaf(scores[m][n][e], factor, -stats.log_sum_exp(m, n, e)));
    scores[m][n][e] = p;
    gradients[m][n][e] *= p;
  });
  if (problem.dropout)
    place.for_each([&](int m, int n, int e) { scores[m][n][e] = kept.has(m, n, e) ? scores[m][n][e] : 0; });
}

}  // namespace espalier::cuda
