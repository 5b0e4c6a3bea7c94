// The softmax steps of attention_tiles.h, forward and backward, over the vectors of an instruction set; part of
// attention_tile_loops.h, which says what E and V are.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/internal/attention_tiles.h"

namespace espalier::kernels::tile_loops {

// 2^x = 2^n p(x - n), n = round(x), p the polynomial of degree 6 with p(0) = 1 of least relative error (2.2e-8) on
// [-1/2, 1/2]. x <= 0. Below 2^-100 zero: such a probability changes no sum, and products with it would be denormal
// numbers, which cost the processor a hundred cycles each (ALiBi makes many). A NaN stays.
template <class V>
typename V::Float exp2(typename V::Float x) {
  const typename V::Float n = V::round(x), r = V::sub(x, n);
  typename V::Float p = V::set(0x1.470b4ap-13f);
  p = V::fma(p, r, V::set(0x1.5f7276p-10f));
  p = V::fma(p, r, V::set(0x1.3b270ep-7f));
  p = V::fma(p, r, V::set(0x1.c6ae72p-5f));
  p = V::fma(p, r, V::set(0x1.ebfbe2p-3f));
  p = V::fma(p, r, V::set(0x1.62e432p-1f));
  p = V::fma(p, r, V::set(1.0f));
  return V::scale_by_power(V::not_less(x, V::set(-100.0f)), p, n);
}

// Some lanes (queries) of a tile of scores.
template <class V, bool kMasked, bool kDropout, bool kRelative>
struct Lanes {
  using Float = typename V::Float;
  using Int = typename V::Int;
  const ScoreTile& tile;
  int64_t lane;
  Float scale;
  Int first, last;

  Lanes(const ScoreTile& t, int64_t first_lane) : tile(t), lane(first_lane), scale(V::set(t.scale)) {
    if constexpr (kMasked) {
      first = V::int_load(t.first + lane);
      last = V::int_load(t.last + lane);
    }
  }

  // The exponent of the probability of a key.
  Float score(int64_t key) const {
    const Float product = V::load(tile.products + key * kTile + lane);
    if constexpr (kRelative) return V::fma(product, scale, V::load(tile.relative + lane - key));
    return V::fma(product, scale, V::set(tile.bias[key]));
  }
  // Of a soft cap, by its result: 1 - tanh^2.
  Float cap_slope(int64_t key) const {
    const Float t = V::mul(V::load(tile.products + key * kTile + lane), V::set(tile.inverse_cap));
    return V::sub(V::set(1), V::mul(t, t));
  }
  // x where the key is visible, else `otherwise`.
  Float visible(int64_t key, Float x, Float otherwise) const {
    if constexpr (!kMasked) return x;
    return V::select(V::between(V::int_set(static_cast<uint32_t>(tile.key0 + key)), first, last), x, otherwise);
  }
  // The factors (0 or 1 / (1 - p)) of the keys key .. key + 3; key is a multiple of 4.
  void keep_factors(int64_t key, Float factor[4]) const {
    constexpr uint32_t kMultiply0 = 0xD2511F53u, kMultiply1 = 0xCD9E8D57u;
    constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
    // The four words of even and of odd lanes apart, each in the low half of 64 bits: what a 32-bit product reads and
    // where it leaves its own low half. The high halves hold what nobody reads.
    const Int queries = V::int_add(V::int_set(tile.query0 + static_cast<uint32_t>(lane)), V::lane_numbers());
    Int words[4][2];
    for (int odd = 0; odd < 2; ++odd) {
      Int x0 = V::int_set(static_cast<uint32_t>(tile.key0 + key) / 4), x1 = odd ? V::high_half(queries) : queries;
      Int x2 = V::int_set(tile.head_word), x3 = V::int_set(tile.sample_word);
      uint32_t key0 = tile.site.word[0], key1 = tile.site.word[1];
      for (int round = 0; round < 10; ++round) {
        const Int product0 = V::multiply_low_halves(x0, V::int_set(kMultiply0));
        const Int product1 = V::multiply_low_halves(x2, V::int_set(kMultiply1));
        x0 = V::xor3(V::high_half(product1), x1, V::int_set(key0));
        x2 = V::xor3(V::high_half(product0), x3, V::int_set(key1));
        x1 = product1;
        x3 = product0;
        key0 += kWeyl0;
        key1 += kWeyl1;
      }
      words[0][odd] = x0;
      words[1][odd] = x1;
      words[2][odd] = x2;
      words[3][odd] = x3;
    }
    for (int i = 0; i < 4; ++i) {
      const Int word = V::join_low_halves(words[i][0], words[i][1]);
      factor[i] = V::select(V::not_below(word, V::int_set(tile.drop_below)), V::set(tile.keep_scale), V::zero());
    }
  }
};

template <class E, bool kMasked, bool kDropout, bool kRelative>
bool softmax_of(const ScoreTile& tile, float* max, float* sum, float* rescale, void* probabilities) {
  using Float = typename E::Float;
  bool rescaled = false;
  for (int64_t lane = 0; lane < kTile; lane += E::kLanes) {
    const Lanes<E, kMasked, kDropout, kRelative> lanes(tile, lane);
    const Float old_max = E::load(max + lane);
    Float new_max = old_max;
    for (int64_t key = 0; key < kTile; ++key) new_max = E::max(lanes.visible(key, lanes.score(key), old_max), new_max);
    Float total = E::zero();
    for (int64_t key = 0; key < kTile; key += 4) {
      Float p[4], factor[4];
      for (int i = 0; i < 4; ++i) {
        p[i] = lanes.visible(key + i, exp2<E>(E::sub(lanes.score(key + i), new_max)), E::zero());
      }
      total = E::add(total, E::add(E::add(p[0], p[1]), E::add(p[2], p[3])));
      if constexpr (kDropout) {
        lanes.keep_factors(key, factor);
        for (int i = 0; i < 4; ++i) p[i] = E::mul(p[i], factor[i]);
      }
      E::store_interleaved(probabilities, key, lane, p[0], p[1]);
      E::store_interleaved(probabilities, key + 2, lane, p[2], p[3]);
    }
    const Float factor = exp2<E>(E::sub(old_max, new_max));
    E::store(sum + lane, E::fma(E::load(sum + lane), factor, total));
    E::store(max + lane, new_max);
    E::store(rescale + lane, factor);
    rescaled = rescaled || !E::all_equal(old_max, new_max);
  }
  return rescaled;
}

template <class E, bool kRelative>
constexpr auto softmax_step(const ScoreTile& tile) {
  if (tile.masked) return tile.dropout ? softmax_of<E, true, true, kRelative> : softmax_of<E, true, false, kRelative>;
  return tile.dropout ? softmax_of<E, false, true, kRelative> : softmax_of<E, false, false, kRelative>;
}

template <class E>
bool softmax(const ScoreTile& tile, float* max, float* sum, float* rescale, void* probabilities) {
  const auto step = tile.relative != nullptr ? softmax_step<E, true>(tile) : softmax_step<E, false>(tile);
  return step(tile, max, sum, rescale, probabilities);
}

// The sums of a tile [key][query] over the pairs of each distance.
//
// A vector of queries of one key is added as it is. Keys that are kLanes apart meet the same vectors, neighbours have
// vectors of their own: a sum that has just been stored is not loaded again while it is on its way.
template <class V>
class DistanceSums {
 public:
  void add(int64_t key, int64_t lane, typename V::Float x) {
    float* const sum = sums_[key % V::kLanes] + kTile - V::kLanes - key / V::kLanes * V::kLanes + lane;
    V::store(sum, V::add(V::load(sum), x));
  }
  // to: [2 * kTile], by kTile - 1 + query lane - key.
  void write(float* to) const {
    for (int64_t i = 0; i < 2 * kTile; i += V::kLanes) V::store(to + i, V::zero());
    for (int64_t key = 0; key < V::kLanes; ++key) {
      for (int64_t i = 0; i < kColumns; i += V::kLanes) {
        float* const sum = to + i + V::kLanes - 1 - key;
        V::store(sum, V::add(V::load(sum), V::load(sums_[key] + i)));
      }
    }
  }

 private:
  static constexpr int64_t kColumns = 2 * kTile - V::kLanes;
  alignas(64) float sums_[V::kLanes][kColumns] = {};
};
// What is in its place where there is no relative bias.
template <class V>
struct NoSums {
  void add(int64_t, int64_t, typename V::Float) {}
};

template <class E, bool kMasked, bool kDropout, bool kRelative>
void softmax_backward_of(const ScoreTile& tile, const float* d_probabilities, const float* log_sum_exp,
                         const float* row_dots, void* probabilities, void* d_scores, void* d_scores_interleaved) {
  using Float = typename E::Float;
  std::conditional_t<kRelative, DistanceSums<E>, NoSums<E>> distances;
  for (int64_t lane = 0; lane < kTile; lane += E::kLanes) {
    const Lanes<E, kMasked, kDropout, kRelative> lanes(tile, lane);
    const Float offset = E::load(log_sum_exp + lane), dot = E::load(row_dots + lane);
    for (int64_t key = 0; key < kTile; key += 4) {
      Float p[4], d[4], factor[4];
      if constexpr (kDropout) lanes.keep_factors(key, factor);
      for (int i = 0; i < 4; ++i) {
        const Float probability = exp2<E>(E::sub(lanes.score(key + i), offset));
        p[i] = lanes.visible(key + i, probability, E::zero());
        d[i] = E::load(d_probabilities + (key + i) * kTile + lane);
        if constexpr (kDropout) d[i] = E::mul(d[i], factor[i]);
        d[i] = E::mul(p[i], E::sub(d[i], dot));
        distances.add(key + i, lane, d[i]);
        if (tile.inverse_cap != 0) d[i] = E::mul(d[i], lanes.cap_slope(key + i));
        if constexpr (kDropout) p[i] = E::mul(p[i], factor[i]);
      }
      for (int i = 0; i < 4; i += 2) {
        E::store_two_rows(probabilities, key + i, lane, p[i], p[i + 1]);
        E::store_two_rows(d_scores, key + i, lane, d[i], d[i + 1]);
        if constexpr (E::kGroup > 1) E::store_interleaved(d_scores_interleaved, key + i, lane, d[i], d[i + 1]);
      }
    }
  }
  if constexpr (kRelative) distances.write(tile.relative_sums);
}

template <class E, bool kRelative>
constexpr auto softmax_backward_step(const ScoreTile& tile) {
  if (tile.masked)
    return tile.dropout ? softmax_backward_of<E, true, true, kRelative>
                        : softmax_backward_of<E, true, false, kRelative>;
  return tile.dropout ? softmax_backward_of<E, false, true, kRelative>
                      : softmax_backward_of<E, false, false, kRelative>;
}

template <class E>
void softmax_backward(const ScoreTile& tile, const float* d_probabilities, const float* log_sum_exp,
                      const float* row_dots, void* probabilities, void* d_scores, void* d_scores_interleaved) {
  const auto step =
      tile.relative != nullptr ? softmax_backward_step<E, true>(tile) : softmax_backward_step<E, false>(tile);
  step(tile, d_probabilities, log_sum_exp, row_dots, probabilities, d_scores, d_scores_interleaved);
}

}  // namespace espalier::kernels::tile_loops
