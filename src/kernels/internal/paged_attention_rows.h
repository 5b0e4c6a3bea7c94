// Attention to keys and values in pages, in vectors V of storage type T: page after page with a running maximum
// (Milakov and Gimelshein 2018). What is computed of a token depends on its query and on the keys and values that it
// sees, never on its neighbours: several queries only share what is loaded.
//
// Keys lie with a position in each lane (PagedAttention), so that the products of a query with 16 of them are one
// vector, its channels added in order.
#pragma once

#include "kernels/internal/row_kernels.h"
#include "kernels/internal/soft_cap_rows.h"
#include "kernels/internal/vector_loops.h"
#include "kernels/internal/vector_math.h"

namespace espalier::kernels {

template <class V>
int64_t page_offset(const PagedAttention& args, int64_t page, int64_t group) {
  return (page * args.groups + group) * page_elements_of_head(args.page_tokens, args.head_size);
}

template <class V, class T>
void append_to_pages(const PagedAttention& args, int64_t count, int64_t group) {
  const int64_t lanes = page_lanes(args.page_tokens);
  for (int64_t token = 0; token < count; ++token) {
    const PagedToken& of = args.tokens[token];
    const int64_t page = of.pages[of.position / args.page_tokens], place = of.position % args.page_tokens;
    const T* const key =
        static_cast<const T*>(args.qkv) + ((token * args.groups + group) * args.parts + args.queries) * args.head_size;
    const int64_t to = page_offset<V>(args, page, group);
    T* const keys = static_cast<T*>(args.keys) + to + place;
    for (int64_t channel = 0; channel < args.head_size; ++channel) keys[channel * lanes] = key[channel];
    __builtin_memcpy(static_cast<T*>(args.values) + to + place * args.head_size, key + args.head_size,
                     static_cast<size_t>(args.head_size) * sizeof(T));
  }
}

inline constexpr int kQueriesAtOnce = 4, kVectorsAtOnce = 4;
inline constexpr float kLowestScore = -3e38f;

// One query on its way through the pages.
template <class V>
struct PagedQuery {
  const PagedToken* token;
  float query[kMaxPagedHeadSize];  // times the scale
  float total[kMaxPagedHeadSize];  // of values, weighted by exp(score - largest)
  float scores[kMaxPageTokens];    // of the current page, then those weights
  float largest, sum_of_weights;
  int64_t first, last;  // places that it sees in the current page; none: last < first

  template <class T>
  void begin(const PagedToken& of, const T* from, int64_t head_size, float scale) {
    token = &of;
    for_each_vector<V>(head_size, [&](int64_t i, auto lanes) {
      lanes.store(query + i, lanes.load(from + i) * V::all(scale));
      lanes.store(total + i, V::all(0));
    });
    largest = kLowestScore, sum_of_weights = 0;
  }

  // `base`: position of the page's first token.
  void turn_to_page(int64_t base, int64_t page_tokens) {
    first = token->first_key > base ? token->first_key - base : 0;
    const int64_t end = token->last_key - base;
    last = end < page_tokens ? end : page_tokens - 1;
  }
  bool sees_any() const { return first <= last; }

  // What is added by distance, and the cap, which comes before it.
  void adjust_scores(const PagedAttention& args, int64_t head, int64_t base) {
    float* const seen = scores + first;
    const int64_t count = last + 1 - first, distance = base + first - token->position;  // key - query
    if (args.soft_cap != 0) soft_cap<V>(seen, count, args.soft_cap);
    if (args.slopes != nullptr) {
      const V slope = V::all(args.slopes[head]), from = V::all(static_cast<float>(distance));
      for_each_vector<V>(count, [&](int64_t i, auto lanes) {
        lanes.store(seen + i, fma(slope, from + V::load(kCounts + i), lanes.load(seen + i)));
      });
    }
    if (args.relative_bias != nullptr) {
      const float* const bias =
          args.relative_bias + head * (2 * args.relative_keys - 1) + args.relative_keys - 1 + distance;
      for_each_vector<V>(
          count, [&](int64_t i, auto lanes) { lanes.store(seen + i, lanes.load(seen + i) + lanes.load(bias + i)); });
    }
  }

  // Scores become weights; what has been added up shrinks to the new maximum.
  void weigh(int64_t head_size) {
    for (int64_t place = 0; place < first; ++place) scores[place] = kLowestScore;
    for (int64_t place = last + 1; place < kMaxPageTokens; ++place) scores[place] = kLowestScore;
    V highest = V::all(largest);
    for (int64_t place = 0; place < kMaxPageTokens; place += V::kWidth) highest = max(V::load(scores + place), highest);
    float lanes_of[V::kWidth];
    highest.store(lanes_of);
    for (int64_t half = V::kWidth / 2; half > 0; half /= 2)
      for (int64_t i = 0; i < half; ++i)
        lanes_of[i] = lanes_of[i] > lanes_of[i + half] ? lanes_of[i] : lanes_of[i + half];
    const V next = V::all(lanes_of[0]);
    const V shrink = exp(V::all(largest) - next);
    for (int64_t place = 0; place < kMaxPageTokens; place += V::kWidth)
      exp(V::load(scores + place) - next).store(scores + place);
    const float sum_of_page = row_sum<V>(kMaxPageTokens, [&](int64_t i, auto lanes) { return lanes.load(scores + i); });
    sum_of_weights = sum_of_weights * first_lane(shrink) + sum_of_page;
    largest = lanes_of[0];
    for_each_vector<V>(head_size,
                       [&](int64_t i, auto lanes) { lanes.store(total + i, lanes.load(total + i) * shrink); });
  }

  template <class T>
  void finish(T* result, int64_t head_size) const {
    const V divisor = V::all(sum_of_weights > 0 ? sum_of_weights : 1);
    for_each_vector<V>(head_size,
                       [&](int64_t i, auto lanes) { lanes.store(result + i, lanes.load(total + i) / divisor); });
  }

 private:
  static constexpr float kCounts[kMaxPageTokens + 16] = {
      0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26,
      27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53,
      54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79};
};

// sums[q][v] += factor(q, i) * vector(i, v) for i = begin .. end - 1, in order.
template <class V, int kQueries, int kVectors, class Factor, class Vector>
[[gnu::always_inline]] inline void add_products(int64_t begin, int64_t end, const Factor& factor, const Vector& vector,
                                                V (&sums)[kQueries][kVectors]) {
  for (int64_t i = begin; i < end; ++i) {
    V right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) right[v] = vector(i, v);
#pragma GCC unroll 4
    for (int q = 0; q < kQueries; ++q) {
      const V left = V::all(factor(q, i));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[q][v] = fma(left, right[v], sums[q][v]);
    }
  }
}

// Scores of kVectors times 16 places from `place` on: channels are added kChannelsInOrder at a time, and those sums one
// after another, for the sake of their rounding.
inline constexpr int64_t kChannelsInOrder = 16;
template <class V, class T, int kQueries, int kVectors>
inline void score_places(PagedQuery<V>* queries, const T* keys, int64_t lanes, int64_t head_size, int64_t place) {
  for (int64_t begin = 0; begin < head_size; begin += kChannelsInOrder) {
    const int64_t end = begin + kChannelsInOrder < head_size ? begin + kChannelsInOrder : head_size;
    V dots[kQueries][kVectors];
#pragma GCC unroll 4
    for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) dots[q][v] = V::all(0);
    add_products(
        begin, end, [&](int q, int64_t channel) { return queries[q].query[channel]; },
        [&](int64_t channel, int v) { return V::load(keys + channel * lanes + place + v * V::kWidth); }, dots);
#pragma GCC unroll 4
    for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        float* const score = queries[q].scores + place + v * V::kWidth;
        if (begin > 0) dots[q][v] = V::load(score) + dots[q][v];
        dots[q][v].store(score);
      }
  }
}

// The channels from `i` on: weighted values of places first .. last added in order.
template <class V, class T, int kQueries, int kVectors, class Lanes>
inline void add_channels(PagedQuery<V>* queries, const T* values, int64_t first, int64_t last, int64_t head_size,
                         int64_t i, Lanes lanes) {
  V sums[kQueries][kVectors];
#pragma GCC unroll 4
  for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[q][v] = lanes.load(queries[q].total + i + v * V::kWidth);
  add_products(
      first, last + 1, [&](int q, int64_t place) { return queries[q].scores[place]; },
      [&](int64_t place, int v) { return lanes.load(values + place * head_size + i + v * V::kWidth); }, sums);
#pragma GCC unroll 4
  for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) lanes.store(queries[q].total + i + v * V::kWidth, sums[q][v]);
}

// How many vectors are multiplied with those of one query, or of kQueriesAtOnce, at a time: what the registers hold.
template <class V, int kQueries>
inline constexpr int kPageVectors = kQueries == 1 ? kVectorsAtOnce : V::kPageVectors;

template <class V, class T, int kQueries>
inline void add_values(PagedQuery<V>* queries, const T* values, int64_t first, int64_t last, int64_t head_size) {
  if (first > last) return;
  constexpr int kVectors = kPageVectors<V, kQueries>;
  int64_t i = 0;
  for (; i + kVectors * V::kWidth <= head_size; i += kVectors * V::kWidth)
    add_channels<V, T, kQueries, kVectors>(queries, values, first, last, head_size, i, FullVector<V>{});
  for (; i + V::kWidth <= head_size; i += V::kWidth)
    add_channels<V, T, kQueries, 1>(queries, values, first, last, head_size, i, FullVector<V>{});
  if (i < head_size)
    add_channels<V, T, kQueries, 1>(queries, values, first, last, head_size, i, PartVector<V>{head_size - i});
}

// One page for neighbours, all of which see something of it.
template <class V, class T, int kQueries>
inline void attend_to_page(PagedQuery<V>* queries, const PagedAttention& args, const T* keys, const T* values,
                           int64_t base, int64_t head) {
  int64_t first = queries[0].first, last = queries[0].last, all_first = first, all_last = last;
  for (int q = 1; q < kQueries; ++q) {
    const PagedQuery<V>& query = queries[q];
    first = query.first < first ? query.first : first, last = query.last > last ? query.last : last;
    all_first = query.first > all_first ? query.first : all_first;
    all_last = query.last < all_last ? query.last : all_last;
  }
  constexpr int kVectors = kPageVectors<V, kQueries>;
  const int64_t lanes = page_lanes(args.page_tokens);
  int64_t place = first / V::kWidth * V::kWidth;
  for (; place + (kVectors - 1) * V::kWidth <= last && place + kVectors * V::kWidth <= lanes;
       place += kVectors * V::kWidth)
    score_places<V, T, kQueries, kVectors>(queries, keys, lanes, args.head_size, place);
  for (; place <= last; place += V::kWidth)
    score_places<V, T, kQueries, 1>(queries, keys, lanes, args.head_size, place);
  for (int q = 0; q < kQueries; ++q) {
    queries[q].adjust_scores(args, head, base);
    queries[q].weigh(args.head_size);
  }
  // What only some of them see is not multiplied by zero for the others: it may be anything.
  if (all_first > all_last) all_first = last + 1, all_last = last;
  for (int q = 0; q < kQueries; ++q) {
    const int64_t before = queries[q].last < all_first ? queries[q].last : all_first - 1;
    add_values<V, T, 1>(queries + q, values, queries[q].first, before, args.head_size);
  }
  add_values<V, T, kQueries>(queries, values, all_first, all_last, args.head_size);
  for (int q = 0; q < kQueries; ++q)
    add_values<V, T, 1>(queries + q, values, all_last + 1, queries[q].last, args.head_size);
}

// Of `count` tokens of one sequence from `first_token` on, at most kPagedTile.
template <class V, class T>
void paged_attention(const PagedAttention& args, int64_t first_token, int64_t count, int64_t head) {
  PagedQuery<V> queries[kPagedTile];
  const int64_t group = head / args.queries, member = head % args.queries;
  int64_t first_key = args.tokens[first_token].first_key, last_key = -1;
  for (int64_t q = 0; q < count; ++q) {
    const PagedToken& token = args.tokens[first_token + q];
    const int64_t from = ((first_token + q) * args.groups + group) * args.parts + member;
    queries[q].begin(token, static_cast<const T*>(args.qkv) + from * args.head_size, args.head_size, args.scale);
    first_key = token.first_key < first_key ? token.first_key : first_key;
    last_key = token.last_key > last_key ? token.last_key : last_key;
  }
  const int32_t* const pages = args.tokens[first_token].pages;
  for (int64_t page = first_key / args.page_tokens; page * args.page_tokens <= last_key; ++page) {
    const int64_t base = page * args.page_tokens, offset = page_offset<V>(args, pages[page], group);
    const T* const keys = static_cast<const T*>(args.keys) + offset;
    const T* const values = static_cast<const T*>(args.values) + offset;
    for (int64_t q = 0; q < count; ++q) queries[q].turn_to_page(base, args.page_tokens);
    const auto all_see = [&](int64_t from) {
      if (from + kQueriesAtOnce > count) return false;
      for (int64_t q = from; q < from + kQueriesAtOnce; ++q)
        if (!queries[q].sees_any()) return false;
      return true;
    };
    for (int64_t q = 0; q < count;) {
      if (all_see(q)) {
        attend_to_page<V, T, kQueriesAtOnce>(queries + q, args, keys, values, base, head);
        q += kQueriesAtOnce;
        continue;
      }
      if (queries[q].sees_any()) attend_to_page<V, T, 1>(queries + q, args, keys, values, base, head);
      ++q;
    }
  }
  for (int64_t q = 0; q < count; ++q)
    queries[q].finish(
        static_cast<T*>(args.result) + ((first_token + q) * args.groups * args.queries + head) * args.head_size,
        args.head_size);
}

}  // namespace espalier::kernels
