// Attention to keys and values in pages by the instruction for pairs of bf16: block after block of 64 positions with a
// running maximum (Milakov and Gimelshein 2018). Rows (queries of neighbours, and of the heads that share keys) are
// multiplied with one copy of the block in which pairs lie as the instruction wants them.
//
// Every sum of a row is taken in an order that depends on positions alone, and what a row does not see adds zeros to
// it: its bits are the same in any company. Weights are rounded to bf16 before they are multiplied and added up.
#include <algorithm>
#include <cstring>

#include "kernels/internal/attention_avx512_math.h"
#include "kernels/internal/attention_tile_softmax.h"
#include "kernels/internal/row_kernels.h"

namespace espalier::kernels::avx512bf16 {
namespace {

using Math = Avx512Math;

constexpr int64_t kBlock = 64, kMaxPairs = kMaxPagedHeadSize / 2;
constexpr int kVectors = kBlock / 16, kRowsAtOnce = 4;
constexpr float kLowest = -3e38f, kLog2E = 1.44269504f;

struct Row {
  int64_t position, first_key, last_key;
  int64_t head;
  float slope;                // in powers of two, as scores are
  const float* bias;          // of a distance of 0; nullptr: none
  float largest, of_weights;  // of its scores, and the sum of its weights
};

// Pairs of bf16 as words of 32 bits. One for each thread.
struct Scratch {
  alignas(64) uint32_t keys[kMaxPairs][kBlock];                 // channels 2 i and 2 i + 1 of each position
  alignas(64) uint32_t values[kBlock / 2 * kMaxPagedHeadSize];  // positions 2 i and 2 i + 1 of each channel
  alignas(64) uint32_t queries[kPagedRows * kMaxPairs];
  alignas(64) uint32_t weights[kPagedRows][kBlock / 2];
  alignas(64) float scores[kPagedRows][kBlock];
  alignas(64) float totals[kPagedRows * kMaxPagedHeadSize];  // of values, weighted by 2^(score - largest)
};

__mmask32 lanes_of_words(int64_t count) { return count >= 32 ? ~__mmask32{0} : (__mmask32{1} << count) - 1; }

// c[r][v] += row r of `a` times columns 16 v to 16 v + 15 of `b`, both in `count` pairs.
template <int kRows, int kColumns>
inline void add_products(const uint32_t* a, int64_t a_stride, const uint32_t* b, int64_t b_stride, int64_t count,
                         __m512 (&c)[kRows][kColumns]) {
  for (int64_t i = 0; i < count; ++i) {
    __m512bh right[kColumns];
    for (int v = 0; v < kColumns; ++v)
      right[v] = reinterpret_cast<__m512bh>(_mm512_load_si512(b + i * b_stride + 16 * v));
    for (int r = 0; r < kRows; ++r) {
      const auto left = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int32_t>(a[r * a_stride + i])));
      for (int v = 0; v < kColumns; ++v) c[r][v] = _mm512_dpbf16_ps(c[r][v], left, right[v]);
    }
  }
}

// body(number of columns of 16, a constant), for 1 to 4 of them.
template <class Body>
inline void with_columns(int64_t count, const Body& body) {
  if (count == 4) return body(std::integral_constant<int, 4>{});
  if (count == 3) return body(std::integral_constant<int, 3>{});
  if (count == 2) return body(std::integral_constant<int, 2>{});
  body(std::integral_constant<int, 1>{});
}

class PagedBlocks {
 public:
  PagedBlocks(const PagedAttention& args, const int32_t* pages, int64_t group, Scratch& scratch)
      : args_(args), pages_(pages), group_(group), num_lanes_((args.head_size + 31) / 32 * 32), scratch_(scratch) {}

  // Rows first_row to first_row + count - 1 of the tokens from first_token on: token after token, each with the query
  // heads of the group.
  void attend(int64_t first_token, int64_t first_row, int64_t count);

 private:
  int64_t num_pairs() const { return (args_.head_size + 1) / 2; }
  const uint16_t* row_of(const void* in, int64_t position) const {
    const int64_t page = pages_[position / args_.page_tokens];
    return static_cast<const uint16_t*>(in) +
           ((page * args_.groups + group_) * args_.page_tokens + position % args_.page_tokens) * args_.head_size;
  }
  void begin(Row& row, int64_t number, int64_t token, int64_t member);
  void finish(const Row& row, int64_t number, int64_t token) const;
  void fetch(const void* in, int64_t position, int64_t count) const;
  void arrange_keys(int64_t base, int64_t first, int64_t last);
  void arrange_values(int64_t base, int64_t first, int64_t last);
  bool values_are_finite(int64_t first, int64_t last) const;
  template <int kRows>
  void score(int64_t row, int64_t first_vector, int64_t last_vector);
  void weigh(Row& row, int64_t number, int64_t base, int64_t first_vector, int64_t last_vector);
  template <int kRows>
  void add_values(const float* shrink, int64_t row, int64_t first_pair, int64_t last_pair);
  void attend_block(Row* rows, int64_t first_row, int64_t end, int64_t base);

  const PagedAttention& args_;
  const int32_t* const pages_;
  const int64_t group_;
  const int64_t num_lanes_;  // for the channels of a head
  float* total(int64_t row) const { return scratch_.totals + row * num_lanes_; }
  uint32_t* query(int64_t row) const { return scratch_.queries + row * num_pairs(); }
  uint32_t* values(int64_t pair) const { return scratch_.values + pair * num_lanes_; }
  Scratch& scratch_;
  float shrink_[kPagedRows];
  int64_t last_of_all_ = -1;  // the last position that a row sees
};

void PagedBlocks::begin(Row& row, int64_t number, int64_t token, int64_t member) {
  const PagedToken& of = args_.tokens[token];
  const int64_t head = group_ * args_.queries + member;
  row = {.position = of.position,
         .first_key = of.first_key,
         .last_key = of.last_key,
         .head = head,
         .slope = args_.slopes == nullptr ? 0 : args_.slopes[head] * kLog2E,
         .bias = args_.relative_bias == nullptr
                     ? nullptr
                     : args_.relative_bias + head * (2 * args_.relative_keys - 1) + args_.relative_keys - 1,
         .largest = kLowest,
         .of_weights = 0};
  const int64_t from = (token * args_.groups + group_) * args_.parts + member;
  const auto bytes = static_cast<size_t>(args_.head_size) * sizeof(uint16_t);
  query(number)[num_pairs() - 1] = 0;  // of an odd size, the other half of the last pair
  std::memcpy(query(number), static_cast<const uint16_t*>(args_.qkv) + from * args_.head_size, bytes);
  std::fill_n(total(number), num_lanes_, 0.0F);
}

// Zero plus zero has no sign, whatever zeros were added before.
void PagedBlocks::finish(const Row& row, int64_t number, int64_t token) const {
  auto* const result =
      static_cast<uint16_t*>(args_.result) + (token * args_.groups * args_.queries + row.head) * args_.head_size;
  const __m512 divisor = _mm512_set1_ps(row.of_weights > 0 ? row.of_weights : 1);
  for (int64_t channel = 0; channel < args_.head_size; channel += 16) {
    const __m512 mean = _mm512_div_ps(_mm512_load_ps(total(number) + channel), divisor);
    uint16_t rounded[16];
    Math::store_bfloat16(rounded, _mm512_add_ps(mean, _mm512_setzero_ps()));
    const auto count = static_cast<size_t>(std::min<int64_t>(16, args_.head_size - channel));
    std::memcpy(result + channel, rounded, count * sizeof(uint16_t));
  }
}

// Towards the processor, a block ahead and along with work on this one: several streams at once are too much for its
// own prefetching.
__attribute__((always_inline)) inline void PagedBlocks::fetch(const void* in, int64_t position, int64_t count) const {
  const int64_t bytes = args_.head_size * 2;
  for (const int64_t end = std::min(position + count, last_of_all_ + 1); position < end; ++position) {
    const auto* const row = reinterpret_cast<const char*>(row_of(in, position));
    for (int64_t byte = 0; byte < bytes; byte += 64) _mm_prefetch(row + byte, _MM_HINT_T0);
  }
}

// Of positions first to last, all in the block; others of the same sixteen may hold anything, which nobody sees.
void PagedBlocks::arrange_keys(int64_t base, int64_t first, int64_t last) {
  for (int64_t start = base + (first - base) / 16 * 16; start <= last; start += 16) {
    fetch(args_.keys, start + kBlock, 16);
    const bool is_one_page = args_.page_tokens % 16 == 0 && args_.head_size % 2 == 0;
    for (int64_t channel = 0; channel < args_.head_size; channel += 32) {
      uint32_t* const to = &scratch_.keys[channel / 2][start - base];
      if (is_one_page && channel + 32 <= args_.head_size) {
        const auto* const from = reinterpret_cast<const uint32_t*>(row_of(args_.keys, start) + channel);
        Math::transpose_block(from, args_.head_size / 2, to, kBlock);
        continue;
      }
      alignas(64) uint32_t block[16][16];
      for (int64_t i = 0; i < 16; ++i) {
        const bool is_seen = start + i >= first && start + i <= last;
        const __m512i words = is_seen ? _mm512_maskz_loadu_epi16(lanes_of_words(args_.head_size - channel),
                                                                 row_of(args_.keys, start + i) + channel)
                                      : _mm512_setzero_si512();
        _mm512_store_si512(block[i], words);
      }
      Math::transpose_block(block[0], 16, to, kBlock);
    }
  }
}

// Of positions first to last; zeros in the other half of a pair.
void PagedBlocks::arrange_values(int64_t base, int64_t first, int64_t last) {
  static constexpr auto kOrder = [] {
    struct Order {
      alignas(64) uint16_t low[32], high[32];
    } order{};
    for (int i = 0; i < 16; ++i) {
      order.low[2 * i] = static_cast<uint16_t>(i), order.low[2 * i + 1] = static_cast<uint16_t>(32 + i);
      order.high[2 * i] = static_cast<uint16_t>(16 + i), order.high[2 * i + 1] = static_cast<uint16_t>(48 + i);
    }
    return order;
  }();
  const __m512i low = _mm512_load_si512(kOrder.low), high = _mm512_load_si512(kOrder.high);
  for (int64_t pair = (first - base) / 2; pair <= (last - base) / 2; ++pair) {
    const int64_t position = base + 2 * pair;
    fetch(args_.values, position + kBlock, 2);
    const uint16_t* const rows[] = {position >= first ? row_of(args_.values, position) : nullptr,
                                    position + 1 <= last ? row_of(args_.values, position + 1) : nullptr};
    for (int64_t channel = 0; channel < args_.head_size; channel += 32) {
      const __mmask32 lanes = lanes_of_words(args_.head_size - channel);
      __m512i words[2];
      for (int half = 0; half < 2; ++half)
        words[half] =
            rows[half] == nullptr ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi16(lanes, rows[half] + channel);
      uint32_t* const to = values(pair) + channel;
      _mm512_store_si512(to, _mm512_permutex2var_epi16(words[0], low, words[1]));
      _mm512_store_si512(to + 16, _mm512_permutex2var_epi16(words[0], high, words[1]));
    }
  }
}

bool PagedBlocks::values_are_finite(int64_t first, int64_t last) const {
  const __m512i exponent = _mm512_set1_epi16(0x7F80);
  for (int64_t position = first; position <= last; ++position)
    for (int64_t channel = 0; channel < args_.head_size; channel += 32) {
      const __m512i words =
          _mm512_maskz_loadu_epi16(lanes_of_words(args_.head_size - channel), row_of(args_.values, position) + channel);
      if (_mm512_cmpeq_epi16_mask(_mm512_and_si512(words, exponent), exponent) != 0) return false;
    }
  return true;
}

template <int kRows>
void PagedBlocks::score(int64_t row, int64_t first_vector, int64_t last_vector) {
  with_columns(last_vector - first_vector + 1, [&](auto columns) {
    constexpr int kColumns = decltype(columns)::value;
    __m512 products[kRows][kColumns];
    for (auto& of_row : products)
      for (__m512& sum : of_row) sum = _mm512_setzero_ps();
    add_products<kRows, kColumns>(query(row), num_pairs(), scratch_.keys[0] + 16 * first_vector, kBlock, num_pairs(),
                                  products);
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kColumns; ++v)
        _mm512_store_ps(&scratch_.scores[row + r][16 * (first_vector + v)], products[r][v]);
  });
}

// Scores become weights.
void PagedBlocks::weigh(Row& row, int64_t number, int64_t base, int64_t first_vector, int64_t last_vector) {
  float* const scores = scratch_.scores[number];
  if (args_.soft_cap != 0) {
    for (int64_t i = 16 * first_vector; i < 16 * (last_vector + 1); ++i) scores[i] *= args_.scale;
    avx512::row_kernels().soft_cap(scores + 16 * first_vector, 16 * (last_vector - first_vector + 1), args_.soft_cap);
  }
  const __m512 scale = _mm512_set1_ps(args_.soft_cap != 0 ? kLog2E : args_.scale * kLog2E);
  const __m512 slope = _mm512_set1_ps(row.slope);
  const __m512i first = _mm512_set1_epi32(static_cast<int32_t>(row.first_key)),
                last = _mm512_set1_epi32(static_cast<int32_t>(row.last_key));
  __m512 exponents[kVectors], weights[kVectors], highest = _mm512_set1_ps(row.largest);
  __mmask16 seen[kVectors] = {};
  for (int64_t v = first_vector; v <= last_vector; ++v) {
    const int64_t start = base + 16 * v;
    const __m512i position = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int32_t>(start)), Math::lane_numbers());
    seen[v] = Math::between(position, first, last);
    const __m512 distance =
        _mm512_cvtepi32_ps(_mm512_sub_epi32(position, _mm512_set1_epi32(static_cast<int32_t>(row.position))));
    __m512 exponent = _mm512_mul_ps(_mm512_load_ps(scores + 16 * v), scale);
    exponent = _mm512_fmadd_ps(slope, distance, exponent);
    if (row.bias != nullptr)
      exponent = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(seen[v], row.bias + start - row.position),
                                 _mm512_set1_ps(kLog2E), exponent);
    exponents[v] = exponent;
    highest = _mm512_mask_max_ps(highest, seen[v], exponent, highest);  // a NaN is not the highest
  }
  const float largest = _mm512_reduce_max_ps(highest);
  for (int v = 0; v < kVectors; ++v) {
    weights[v] = seen[v] == 0
                     ? _mm512_setzero_ps()
                     : _mm512_maskz_mov_ps(
                           seen[v], tile_loops::exp2<Math>(_mm512_sub_ps(exponents[v], _mm512_set1_ps(largest))));
  }
  __m512 rounded[kVectors];
  for (int v = 0; v < kVectors; v += 2) {
    const auto pairs = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(weights[v + 1], weights[v]));
    _mm512_store_si512(&scratch_.weights[number][8 * v], pairs);
    rounded[v] = Math::load_bfloat16(reinterpret_cast<const uint16_t*>(&scratch_.weights[number][8 * v]));
    rounded[v + 1] = Math::load_bfloat16(reinterpret_cast<const uint16_t*>(&scratch_.weights[number][8 * v]) + 16);
  }
  const float sum =
      Math::sum(_mm512_add_ps(_mm512_add_ps(rounded[0], rounded[1]), _mm512_add_ps(rounded[2], rounded[3])));
  shrink_[number] = _mm512_cvtss_f32(tile_loops::exp2<Math>(_mm512_set1_ps(row.largest - largest)));
  row.of_weights = row.of_weights * shrink_[number] + sum;
  row.largest = largest;
}

template <int kRows>
void PagedBlocks::add_values(const float* shrink, int64_t row, int64_t first_pair, int64_t last_pair) {
  for (int64_t channel = 0; channel < args_.head_size; channel += kBlock)
    with_columns(std::min<int64_t>(kVectors, (args_.head_size - channel + 15) / 16), [&](auto columns) {
      constexpr int kColumns = decltype(columns)::value;
      __m512 sums[kRows][kColumns];
      for (int r = 0; r < kRows; ++r)
        for (int v = 0; v < kColumns; ++v)
          sums[r][v] =
              _mm512_mul_ps(_mm512_load_ps(total(row + r) + channel + 16 * v), _mm512_set1_ps(shrink[row + r]));
      add_products<kRows, kColumns>(&scratch_.weights[row][first_pair], kBlock / 2, values(first_pair) + channel,
                                    num_lanes_, last_pair - first_pair + 1, sums);
      for (int r = 0; r < kRows; ++r)
        for (int v = 0; v < kColumns; ++v) _mm512_store_ps(total(row + r) + channel + 16 * v, sums[r][v]);
    });
}

// What rows first_row to end - 1 see of the block from `base` on.
void PagedBlocks::attend_block(Row* rows, int64_t first_row, int64_t end, int64_t base) {
  int64_t first = base + kBlock, last = base - 1, first_of_all = base, last_of_all = base + kBlock - 1;
  for (int64_t row = first_row; row < end; ++row) {
    const int64_t from = std::max(rows[row].first_key, base), to = std::min(rows[row].last_key, base + kBlock - 1);
    if (from > to) {
      if (end - first_row == 1) return;
      first_of_all = base + kBlock, last_of_all = base - 1;  // it sees none
      continue;
    }
    first = std::min(first, from), last = std::max(last, to);
    first_of_all = std::max(first_of_all, from), last_of_all = std::min(last_of_all, to);
  }
  if (first > last) return;
  // Zero times what a row does not see has to be zero.
  if (end - first_row > 1 && !(values_are_finite(first, std::min(last, first_of_all - 1)) &&
                               values_are_finite(std::max(first, last_of_all + 1), last))) {
    for (int64_t row = first_row; row < end; ++row) attend_block(rows, row, row + 1, base);
    return;
  }
  arrange_keys(base, first, last);
  arrange_values(base, first, last);
  const int64_t first_vector = (first - base) / 16, last_vector = (last - base) / 16, first_pair = (first - base) / 2,
                last_pair = (last - base) / 2;
  int64_t row = first_row;
  for (; row + kRowsAtOnce <= end; row += kRowsAtOnce) score<kRowsAtOnce>(row, first_vector, last_vector);
  for (; row < end; ++row) score<1>(row, first_vector, last_vector);
  for (row = first_row; row < end; ++row) weigh(rows[row], row, base, first_vector, last_vector);
  for (row = first_row; row + kRowsAtOnce <= end; row += kRowsAtOnce)
    add_values<kRowsAtOnce>(shrink_, row, first_pair, last_pair);
  for (; row < end; ++row) add_values<1>(shrink_, row, first_pair, last_pair);
}

void PagedBlocks::attend(int64_t first_token, int64_t first_row, int64_t count) {
  Row rows[kPagedRows];
  int64_t first = 0, last = -1;
  const auto token_of = [&](int64_t row) { return first_token + (first_row + row) / args_.queries; };
  for (int64_t row = 0; row < count; ++row) {
    begin(rows[row], row, token_of(row), (first_row + row) % args_.queries);
    first = row == 0 ? rows[row].first_key : std::min(first, rows[row].first_key);
    last = std::max(last, rows[row].last_key);
  }
  last_of_all_ = last;
  for (int64_t base = first / kBlock * kBlock; base <= last; base += kBlock) attend_block(rows, 0, count, base);
  for (int64_t row = 0; row < count; ++row) finish(rows[row], row, token_of(row));
}

}  // namespace

void paged_attention_bf16(const PagedAttention& args, int64_t first, int64_t count, int64_t group) {
  static thread_local Scratch scratch;
  PagedBlocks blocks(args, args.tokens[first].pages, group, scratch);
  const int64_t rows = count * args.queries;
  for (int64_t row = 0; row < rows; row += kPagedRows)
    blocks.attend(first, row, std::min<int64_t>(kPagedRows, rows - row));
}

}  // namespace espalier::kernels::avx512bf16
