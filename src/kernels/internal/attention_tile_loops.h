// The tile operations of attention_tiles.h, written once over the vectors of an instruction set.
//
// E is an element policy: the vectors (kLanes floats, see attention_avx512_math.h for the members), and
//   Element, kGroup              the type of packed elements, and how many make 32 bits
//   dot(sum, a, b)               sum + the product of 32-bit groups a and b, per lane
//   load_elements, store_elements   kLanes elements, as floats
//   interleave_two(first, second, count, to)   two rows of `count` elements, a multiple of 32, as pairs
//   store_two_rows, store_interleaved(tile, key, lane, x, y)
//                                x and y of the keys key and key + 1 into a tile [key][query] or [key/g][query][g]
//   begin, end, multiply, kBlockRows
// Policies live in the unnamed namespace of their unit, and so does every instance of these templates: no unit's code
// can replace another's.
#pragma once

#include <cstdint>

#include "kernels/internal/attention_tile_softmax.h"
#include "kernels/internal/attention_tiles.h"

namespace espalier::kernels::tile_loops {

// ---- values of the compute type

template <class V, AttentionType type>
typename V::Float load_value(const void* values, int64_t index) {
  if constexpr (type == AttentionType::kFloat) return V::load(static_cast<const float*>(values) + index);
  const uint16_t* const bits = static_cast<const uint16_t*>(values) + index;
  if constexpr (type == AttentionType::kBFloat16) return V::load_bfloat16(bits);
  return V::load_half(bits);
}

template <class V, AttentionType type>
void store_value(void* values, int64_t index, typename V::Float x) {
  if constexpr (type == AttentionType::kFloat) return V::store(static_cast<float*>(values) + index, x);
  uint16_t* const bits = static_cast<uint16_t*>(values) + index;
  if constexpr (type == AttentionType::kBFloat16) return V::store_bfloat16(bits, x);
  return V::store_half(bits, x);
}

constexpr int64_t value_bytes(AttentionType type) { return type == AttentionType::kFloat ? 4 : 2; }

// The last features of a row, fewer than kLanes, by way of a buffer of whole vectors.
template <class V>
void copy_bytes(const void* from, void* to, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i) static_cast<char*>(to)[i] = static_cast<const char*>(from)[i];
}

// load_value of `count` <= kLanes values, then zeros.
template <class V, AttentionType type>
typename V::Float load_values(const void* values, int64_t index, int64_t count) {
  if (count >= V::kLanes) return load_value<V, type>(values, index);
  float padded[V::kLanes] = {};
  copy_bytes<V>(static_cast<const char*>(values) + index * value_bytes(type), padded, count * value_bytes(type));
  return load_value<V, type>(padded, 0);
}

template <class V, AttentionType type>
void store_values(void* values, int64_t index, int64_t count, typename V::Float x) {
  if (count >= V::kLanes) return store_value<V, type>(values, index, x);
  float padded[V::kLanes];
  store_value<V, type>(padded, 0, x);
  copy_bytes<V>(padded, static_cast<char*>(values) + index * value_bytes(type), count * value_bytes(type));
}

// ---- panels

template <class E, AttentionType type>
void load_rows_of(const void* source, int64_t stride, int64_t positions, int64_t features, int64_t padded, void* rows) {
  typename E::Element* row = static_cast<typename E::Element*>(rows);
  for (int64_t position = 0; position < kTile; ++position, row += padded) {
    const int64_t present = position < positions ? features : 0;
    if constexpr (E::kGroup == 2 && type == AttentionType::kBFloat16) {  // as they are
      if (present == padded) {
        copy_bytes<E>(static_cast<const uint16_t*>(source) + position * stride, row, 2 * padded);
        continue;
      }
    }
    for (int64_t feature = 0; feature < padded; feature += E::kLanes) {
      const typename E::Float values =
          feature < present ? load_values<E, type>(source, position * stride + feature, present - feature) : E::zero();
      E::store_elements(row + feature, values);
    }
  }
}

template <class E>
void load_rows(AttentionType type, const void* source, int64_t stride, int64_t positions, int64_t features,
               int64_t padded, void* rows) {
  switch (type) {
    case AttentionType::kFloat:
      return load_rows_of<E, AttentionType::kFloat>(source, stride, positions, features, padded, rows);
    case AttentionType::kBFloat16:
      return load_rows_of<E, AttentionType::kBFloat16>(source, stride, positions, features, padded, rows);
    case AttentionType::kHalf:
      return load_rows_of<E, AttentionType::kHalf>(source, stride, positions, features, padded, rows);
  }
}

// to[column][row] = from[row][column], 32-bit words; rows and columns multiples of kLanes.
template <class V>
void transpose_words(const void* from, int64_t rows, int64_t columns, void* to) {
  for (int64_t row = 0; row < rows; row += V::kLanes) {
    for (int64_t column = 0; column < columns; column += V::kLanes) {
      V::transpose_block(static_cast<const uint32_t*>(from) + row * columns + column, columns,
                         static_cast<uint32_t*>(to) + column * rows + row, rows);
    }
  }
}

template <class E>
void columns(const void* rows, int64_t padded, void* columns) {
  transpose_words<E>(rows, kTile, padded / E::kGroup, columns);
}

template <class E>
void transpose(const void* interleaved, int64_t padded, void* transposed) {
  transpose_words<E>(interleaved, kTile / E::kGroup, padded, transposed);
}

template <class E>
void interleave(const void* rows, int64_t padded, void* interleaved) {
  const auto* from = static_cast<const typename E::Element*>(rows);
  auto* to = static_cast<typename E::Element*>(interleaved);
  if constexpr (E::kGroup == 1) {
    copy_bytes<E>(from, to, kTile * padded * static_cast<int64_t>(sizeof(*to)));
  } else {
    static_assert(E::kGroup == 2);
    for (int64_t row = 0; row < kTile; row += 2)
      E::interleave_two(from + row * padded, from + (row + 1) * padded, padded, to + row * padded);
  }
}

template <class V, AttentionType type>
void store_rows_of(const float* source, int64_t padded, float factor, int64_t positions, int64_t features, void* target,
                   int64_t stride) {
  for (int64_t position = 0; position < positions; ++position) {
    for (int64_t feature = 0; feature < features; feature += V::kLanes) {
      const typename V::Float x = V::mul(V::load(source + position * padded + feature), V::set(factor));
      store_values<V, type>(target, position * stride + feature, features - feature, x);
    }
  }
}

template <class V>
void store_rows(AttentionType type, const float* source, int64_t padded, float factor, int64_t positions,
                int64_t features, void* target, int64_t stride) {
  switch (type) {
    case AttentionType::kFloat:
      return store_rows_of<V, AttentionType::kFloat>(source, padded, factor, positions, features, target, stride);
    case AttentionType::kBFloat16:
      return store_rows_of<V, AttentionType::kBFloat16>(source, padded, factor, positions, features, target, stride);
    case AttentionType::kHalf:
      return store_rows_of<V, AttentionType::kHalf>(source, padded, factor, positions, features, target, stride);
  }
}

template <class V>
void scale_columns(float* c, const float* factor, int64_t rows) {
  for (int64_t lane = 0; lane < kTile; lane += V::kLanes) {
    const typename V::Float f = V::load(factor + lane);
    for (int64_t row = 0; row < rows; ++row)
      V::store(c + row * kTile + lane, V::mul(V::load(c + row * kTile + lane), f));
  }
}

template <class V>
void untranspose(const float* source, int64_t padded, float* rows) {
  transpose_words<V>(source, padded, kTile, rows);
}

template <class E>
void row_dots(const void* a_rows, const void* b_rows, int64_t padded, float* dots) {
  const auto* a = static_cast<const typename E::Element*>(a_rows);
  const auto* b = static_cast<const typename E::Element*>(b_rows);
  for (int64_t row = 0; row < kTile; ++row) {
    typename E::Float sum = E::zero();
    for (int64_t feature = row * padded; feature < (row + 1) * padded; feature += E::kLanes) {
      sum = E::fma(E::load_elements(a + feature), E::load_elements(b + feature), sum);
    }
    dots[row] = E::sum(sum);
  }
}

// ---- products

// Blocks of kRows x 2 vectors of c stay in registers; a word of `a` is broadcast to all lanes.
template <class E>
void multiply(float* c, const void* a, const void* b, int64_t m, int64_t n, int64_t k, bool accumulate) {
  constexpr int kRows = E::kBlockRows, kVectors = 2;
  const int64_t words = k / E::kGroup;
  const auto* const left = static_cast<const uint32_t*>(a);
  const auto* const right = static_cast<const uint32_t*>(b);
  for (int64_t column = 0; column < n; column += kVectors * E::kLanes) {
    for (int64_t row = 0; row < m; row += kRows) {
      typename E::Float sum[kRows][kVectors];
      float* const block = c + row * n + column;
      for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kVectors; ++v) sum[r][v] = accumulate ? E::load(block + r * n + v * E::kLanes) : E::zero();
      }
      for (int64_t word = 0; word < words; ++word) {
        const uint32_t* const b_row = right + word * n + column;
        const typename E::Int b0 = E::int_load(b_row), b1 = E::int_load(b_row + E::kLanes);
        for (int r = 0; r < kRows; ++r) {
          const typename E::Int a_word = E::int_set(left[(row + r) * words + word]);
          sum[r][0] = E::dot(sum[r][0], a_word, b0);
          sum[r][1] = E::dot(sum[r][1], a_word, b1);
        }
      }
      for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kVectors; ++v) E::store(block + r * n + v * E::kLanes, sum[r][v]);
      }
    }
  }
}

// ---- single queries

template <class V, AttentionType type>
void dot_rows_of(const float* query, const void* keys, int64_t stride, int64_t count, int64_t features, float* dots) {
  const int64_t whole = features / V::kLanes * V::kLanes;
  for (int64_t row = 0; row < count; ++row) {
    typename V::Float sum = V::zero();
    for (int64_t feature = 0; feature < whole; feature += V::kLanes) {
      sum = V::fma(load_value<V, type>(keys, row * stride + feature), V::load(query + feature), sum);
    }
    if (whole < features) {
      const typename V::Float values = load_values<V, type>(keys, row * stride + whole, features - whole);
      sum = V::fma(values, load_values<V, AttentionType::kFloat>(query, whole, features - whole), sum);
    }
    dots[row] = V::sum(sum);
  }
}

template <class V>
void dot_rows(AttentionType type, const float* query, const void* keys, int64_t stride, int64_t count, int64_t features,
              float* dots) {
  const auto dot = type == AttentionType::kFloat      ? dot_rows_of<V, AttentionType::kFloat>
                   : type == AttentionType::kBFloat16 ? dot_rows_of<V, AttentionType::kBFloat16>
                                                      : dot_rows_of<V, AttentionType::kHalf>;
  dot(query, keys, stride, count, features, dots);
}

// kVectors whole vectors of features: as many sums hide the latency of each addition.
template <class V, AttentionType type, int kVectors>
void add_whole_vectors(const float* weights, const void* rows, int64_t stride, int64_t count, float* result) {
  typename V::Float sum[kVectors];
  for (int v = 0; v < kVectors; ++v) sum[v] = V::load(result + v * V::kLanes);
  for (int64_t row = 0; row < count; ++row) {
    const typename V::Float weight = V::set(weights[row]);
    for (int v = 0; v < kVectors; ++v) {
      sum[v] = V::fma(load_value<V, type>(rows, row * stride + v * V::kLanes), weight, sum[v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) V::store(result + v * V::kLanes, sum[v]);
}

template <class V, AttentionType type>
void add_rows_of(const float* weights, const void* rows, int64_t stride, int64_t count, int64_t features,
                 float* result) {
  const char* part = static_cast<const char*>(rows);
  const auto advance = [&](int64_t taken) {
    part += taken * value_bytes(type);
    result += taken;
    features -= taken;
  };
  for (; features >= 4 * V::kLanes; advance(4 * V::kLanes)) {
    add_whole_vectors<V, type, 4>(weights, part, stride, count, result);
  }
  for (; features >= V::kLanes; advance(V::kLanes)) add_whole_vectors<V, type, 1>(weights, part, stride, count, result);
  if (features == 0) return;
  typename V::Float sum = load_values<V, AttentionType::kFloat>(result, 0, features);
  for (int64_t row = 0; row < count; ++row) {
    sum = V::fma(load_values<V, type>(part, row * stride, features), V::set(weights[row]), sum);
  }
  store_values<V, AttentionType::kFloat>(result, 0, features, sum);
}

template <class V>
void add_rows(AttentionType type, const float* weights, const void* rows, int64_t stride, int64_t count,
              int64_t features, float* result) {
  const auto add = type == AttentionType::kFloat      ? add_rows_of<V, AttentionType::kFloat>
                   : type == AttentionType::kBFloat16 ? add_rows_of<V, AttentionType::kBFloat16>
                                                      : add_rows_of<V, AttentionType::kHalf>;
  add(weights, rows, stride, count, features, result);
}

template <class V>
void exp2_all(float* x, int64_t count) {
  for (int64_t i = 0; i < count; i += V::kLanes) {
    const typename V::Float y = exp2<V>(load_values<V, AttentionType::kFloat>(x, i, count - i));
    store_values<V, AttentionType::kFloat>(x, i, count - i, y);
  }
}

template <class E>
constexpr TileOps make_table() {
  return {sizeof(typename E::Element),
          E::begin,
          E::end,
          load_rows<E>,
          columns<E>,
          interleave<E>,
          transpose<E>,
          store_rows<E>,
          untranspose<E>,
          row_dots<E>,
          E::multiply,
          softmax<E>,
          scale_columns<E>,
          softmax_backward<E>,
          dot_rows<E>,
          add_rows<E>,
          exp2_all<E>};
}

}  // namespace espalier::kernels::tile_loops
