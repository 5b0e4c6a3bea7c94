// Attention to keys and values in pages, in vectors V of storage type T: page after page with a running maximum
// (Milakov and Gimelshein 2018). What is computed of a token depends on its query and on the keys and values that it
// sees, never on its neighbours.
#pragma once

#include "kernels/internal/row_kernels.h"
#include "kernels/internal/soft_cap_rows.h"
#include "kernels/internal/vector_loops.h"
#include "kernels/internal/vector_math.h"

namespace espalier::kernels {

inline int64_t page_offset(const PagedAttention& args, int64_t page, int64_t group, int64_t place) {
  return ((page * args.groups + group) * args.page_tokens + place) * args.head_size;
}

template <class T>
void append_to_pages(const PagedAttention& args, int64_t count, int64_t group) {
  for (int64_t token = 0; token < count; ++token) {
    const PagedToken& place = args.tokens[token];
    const int64_t page = place.pages[place.position / args.page_tokens];
    const T* const key =
        static_cast<const T*>(args.qkv) + ((token * args.groups + group) * args.parts + args.queries) * args.head_size;
    const int64_t to = page_offset(args, page, group, place.position % args.page_tokens);
    const auto bytes = static_cast<size_t>(args.head_size) * sizeof(T);
    __builtin_memcpy(static_cast<T*>(args.keys) + to, key, bytes);
    __builtin_memcpy(static_cast<T*>(args.values) + to, key + args.head_size, bytes);
  }
}

inline constexpr int kVectorsAtOnce = 4;

// One query on its way through the pages.
template <class V>
struct PagedQuery {
  const PagedToken* token;
  float query[kMaxPagedHeadSize];  // times the scale
  float total[kMaxPagedHeadSize];  // of values, weighted by exp(score - largest)
  float scores[kMaxPageTokens];    // of the current page, then those weights
  float largest, sum_of_weights;

  // Of the page whose first token has position `base`, the places that this query sees: first .. last.
  int64_t first_place(int64_t base) const { return token->first_key > base ? token->first_key - base : 0; }
  int64_t last_place(int64_t base, int64_t page_tokens) const {
    const int64_t last = token->last_key - base;
    return last < page_tokens ? last : page_tokens - 1;
  }

  template <class T>
  void begin(const PagedToken& of, const T* from, int64_t head_size, float scale) {
    token = &of;
    for_each_vector<V>(head_size, [&](int64_t i, auto lanes) {
      lanes.store(query + i, lanes.load(from + i) * V::all(scale));
      lanes.store(total + i, V::all(0));
    });
    largest = -3e38f, sum_of_weights = 0;
  }

  template <class T>
  void add_page(const T* values, int64_t base, const PagedAttention& args) {
    const int64_t first = first_place(base), last = last_place(base, args.page_tokens);
    if (first > last) return;
    float highest = largest;
    for (int64_t place = first; place <= last; ++place) highest = scores[place] > highest ? scores[place] : highest;
    float shrink[V::kWidth];
    exp(V::all(largest - highest)).store(shrink);
    for (int64_t place = 0; place < first; ++place) scores[place] = -3e38f;
    for (int64_t place = last + 1; place < kMaxPageTokens; ++place) scores[place] = -3e38f;
    for (int64_t place = 0; place < kMaxPageTokens; place += V::kWidth)
      exp(V::load(scores + place) - V::all(highest)).store(scores + place);
    const float sum_of_page = row_sum<V>(kMaxPageTokens, [&](int64_t i, auto lanes) { return lanes.load(scores + i); });
    sum_of_weights = sum_of_weights * shrink[0] + sum_of_page;
    largest = highest;
    // Several vectors of channels at a time: the additions of one wait for each other.
    int64_t i = 0;
    for (; i + kVectorsAtOnce * V::kWidth <= args.head_size; i += kVectorsAtOnce * V::kWidth)
      add_values<kVectorsAtOnce>(values, first, last, args.head_size, i, V::all(shrink[0]), FullVector<V>{});
    for (; i + V::kWidth <= args.head_size; i += V::kWidth)
      add_values<1>(values, first, last, args.head_size, i, V::all(shrink[0]), FullVector<V>{});
    if (i < args.head_size)
      add_values<1>(values, first, last, args.head_size, i, V::all(shrink[0]), PartVector<V>{args.head_size - i});
  }

  // The channels from `i` on: total shrunk, and the weighted values of places first .. last added in order.
  template <int kVectors, class T, class Lanes>
  void add_values(const T* values, int64_t first, int64_t last, int64_t head_size, int64_t i, V shrink, Lanes lanes) {
    V sums_of_values[kVectors];
    for (int v = 0; v < kVectors; ++v) sums_of_values[v] = lanes.load(total + i + v * V::kWidth) * shrink;
    for (int64_t place = first; place <= last; ++place) {
      const V weight = V::all(scores[place]);
      const T* const row = values + place * head_size + i;
      for (int v = 0; v < kVectors; ++v)
        sums_of_values[v] = fma(weight, lanes.load(row + v * V::kWidth), sums_of_values[v]);
    }
    for (int v = 0; v < kVectors; ++v) lanes.store(total + i + v * V::kWidth, sums_of_values[v]);
  }

  template <class T>
  void finish(T* result, int64_t head_size) const {
    const V divisor = V::all(sum_of_weights > 0 ? sum_of_weights : 1);
    for_each_vector<V>(head_size,
                       [&](int64_t i, auto lanes) { lanes.store(result + i, lanes.load(total + i) / divisor); });
  }
};

// dots[q * kPlaces + p]: query q times key p, both over all channels, in one running vector.
template <class V, class T, int kCount, int kPlaces>
inline void multiply_keys(const PagedQuery<V>* queries, const T* keys, int64_t head_size, V (&dots)[kCount * kPlaces]) {
  for (V& dot : dots) dot = V::all(0);
  for_each_vector<V>(head_size, [&](int64_t i, auto lanes) {
    V query[kCount];
    for (int q = 0; q < kCount; ++q) query[q] = lanes.load(queries[q].query + i);
    for (int p = 0; p < kPlaces; ++p) {
      const V key = lanes.load(keys + p * head_size + i);
      for (int q = 0; q < kCount; ++q) dots[q * kPlaces + p] = fma(query[q], key, dots[q * kPlaces + p]);
    }
  });
}

// Scores of a page's keys `first` .. `last` for kCount queries.
template <class V, class T, int kCount>
inline void score_page(PagedQuery<V>* queries, const T* keys, int64_t base, int64_t first, int64_t last,
                       int64_t head_size, float slope) {
  const auto set = [&](int q, int64_t place, float dot) {
    queries[q].scores[place] = dot + slope * static_cast<float>(base + place - queries[q].token->position);
  };
  int64_t place = first;
  if constexpr (V::kSixteenAtOnce) {
    constexpr int kPlaces = 16 / kCount;
    for (; place + kPlaces <= last + 1; place += kPlaces) {
      V dots[16];
      multiply_keys<V, T, kCount, kPlaces>(queries, keys + place * head_size, head_size, dots);
      float scores[16];
      sums(dots).store(scores);
      for (int q = 0; q < kCount; ++q)
        for (int p = 0; p < kPlaces; ++p) set(q, place + p, scores[q * kPlaces + p]);
    }
  }
  for (; place <= last; ++place) {
    V dots[kCount];
    multiply_keys<V, T, kCount, 1>(queries, keys + place * head_size, head_size, dots);
    for (int q = 0; q < kCount; ++q) set(q, place, sum(dots[q]));
  }
}

// The same with a soft cap, which comes before the slope.
template <class V, class T, int kCount>
inline void score_capped_page(PagedQuery<V>* queries, const T* keys, int64_t base, int64_t first, int64_t last,
                              const PagedAttention& args, float slope) {
  score_page<V, T, kCount>(queries, keys, base, first, last, args.head_size, 0);
  for (int q = 0; q < kCount; ++q) {
    float* const scores = queries[q].scores;
    soft_cap<V>(scores + first, last + 1 - first, args.soft_cap);
    for (int64_t place = first; place <= last; ++place)
      scores[place] += slope * static_cast<float>(base + place - queries[q].token->position);
  }
}

// Adds the head's numbers of each distance to the scores of places first .. last.
template <class V>
inline void add_relative_bias(PagedQuery<V>& query, const float* bias, int64_t keys, int64_t base, int64_t first,
                              int64_t last) {
  const float* const from = bias + keys - 1 + base - query.token->position;
  for (int64_t place = first; place <= last; ++place) query.scores[place] += from[place];
}

template <class V, class T, int kCount>
void attend_to_pages(const PagedAttention& args, int64_t first_token, int64_t head) {
  PagedQuery<V> queries[kCount];
  const int64_t group = head / args.queries, member = head % args.queries;
  int64_t first_key = args.tokens[first_token].first_key, last_key = -1;
  for (int64_t q = 0; q < kCount; ++q) {
    const PagedToken& token = args.tokens[first_token + q];
    const int64_t from = ((first_token + q) * args.groups + group) * args.parts + member;
    queries[q].begin(token, static_cast<const T*>(args.qkv) + from * args.head_size, args.head_size, args.scale);
    first_key = token.first_key < first_key ? token.first_key : first_key;
    last_key = token.last_key > last_key ? token.last_key : last_key;
  }
  const float slope = args.slopes == nullptr ? 0 : args.slopes[head];
  const int32_t* const pages = args.tokens[first_token].pages;
  for (int64_t page = first_key / args.page_tokens; page * args.page_tokens <= last_key; ++page) {
    const int64_t base = page * args.page_tokens, offset = page_offset(args, pages[page], group, 0);
    const int64_t last = last_key - base < args.page_tokens ? last_key - base : args.page_tokens - 1;
    const T* const keys = static_cast<const T*>(args.keys) + offset;
    const int64_t first = first_key > base ? first_key - base : 0;
    if (args.soft_cap == 0)
      score_page<V, T, kCount>(queries, keys, base, first, last, args.head_size, slope);
    else
      score_capped_page<V, T, kCount>(queries, keys, base, first, last, args, slope);
    if (args.relative_bias != nullptr)
      for (PagedQuery<V>& query : queries)
        add_relative_bias(query, args.relative_bias + head * (2 * args.relative_keys - 1), args.relative_keys, base,
                          first, last);
    for (int q = 0; q < kCount; ++q) queries[q].add_page(static_cast<const T*>(args.values) + offset, base, args);
  }
  for (int64_t q = 0; q < kCount; ++q)
    queries[q].finish(
        static_cast<T*>(args.result) + ((first_token + q) * args.groups * args.queries + head) * args.head_size,
        args.head_size);
}

template <class V, class T>
void paged_attention(const PagedAttention& args, int64_t first, int64_t count, int64_t head) {
  if (count == kPagedTile) return attend_to_pages<V, T, kPagedTile>(args, first, head);
  for (int64_t token = first; token < first + count; ++token) attend_to_pages<V, T, 1>(args, token, head);
}

}  // namespace espalier::kernels
