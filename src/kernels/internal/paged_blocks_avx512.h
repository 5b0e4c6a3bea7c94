// Attention to keys and values in pages by products of pairs of bf16: block after block of 64 positions with a running
// maximum (Milakov and Gimelshein 2018). Pages hold the pairs as the instructions want them, so a page of 64 tokens is
// multiplied where it is; smaller ones are copied into a block.
//
// Every sum of a row is taken in an order that depends on positions alone, and what a row does not see adds zeros to
// it: its bits are the same in any company. Weights are rounded to bf16 before they are multiplied and added up.
//
// Internal linkage: each unit compiles its own copy for its own instruction set, with its own Products:
//   explicit Products(const PagedAttention&)
//   void score(Scratch&, Rows, const Block& block, const Block& next, int64_t first_vector, int64_t last_vector)
//     scores = queries times keys, in those vectors of 16 positions
//   void add_values(Scratch&, Rows, const Block& block, const Block& next, int64_t first_pair, int64_t last_pair)
//     totals = totals times shrink + weights times values, of those pairs of positions
// `next`, unless its pointers are null, is what comes next and may be fetched.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>

#include "kernels/internal/attention_avx512_math.h"
#include "kernels/internal/attention_tile_softmax.h"
#include "kernels/internal/row_kernels.h"

namespace espalier::kernels::avx512bf16 {
namespace {

using Math = Avx512Math;

constexpr int64_t kBlock = 64, kMaxPairs = kMaxPagedHeadSize / 2;
constexpr int kVectors = kBlock / 16;
constexpr float kLowest = -3e38f, kLog2E = 1.44269504f;

struct Row {
  int64_t position, first_key, last_key;
  int64_t head;
  float slope;                // in powers of two, as scores are
  const float* bias;          // of a distance of 0; nullptr: none
  float largest, of_weights;  // of its scores, and the sum of its weights
};

// One for each thread.
struct Scratch {
  alignas(64) uint32_t keys[kMaxPairs * kBlock];  // a block that is not in one page
  alignas(64) uint32_t values[kBlock / 2 * kMaxPagedHeadSize];
  alignas(64) uint32_t queries[kPagedRows * kMaxPairs];
  alignas(64) uint32_t weights[kPagedRows][kBlock / 2];
  alignas(64) float scores[kPagedRows][kBlock];
  alignas(64) float totals[kPagedRows * kMaxPagedHeadSize];  // of values, weighted by 2^(score - largest)
  float shrink[kPagedRows];
  alignas(64) uint32_t padded[kBlock / 2 * kMaxPagedHeadSize];  // values with zeros around them, for tiles
};

// A block as pages hold it: keys [pair of channels][kBlock], values [pair of positions][lanes].
struct Block {
  const uint32_t* keys = nullptr;
  const uint32_t* values = nullptr;
};

// Of all that attend together.
struct Rows {
  int64_t begin, end;
};

template <class Products>
class PagedBlocks {
 public:
  PagedBlocks(const PagedAttention& args, const int32_t* pages, int64_t group, Scratch& scratch)
      : args_(args),
        pages_(pages),
        group_(group),
        num_lanes_(paged_lanes(args.head_size)),
        products_(args),
        scratch_(scratch) {}

  // Rows first_row to first_row + count - 1 of the tokens from first_token on: token after token, each with the query
  // heads of the group.
  void attend(int64_t first_token, int64_t first_row, int64_t count);

 private:
  int64_t num_pairs() const { return (args_.head_size + 1) / 2; }
  // Of the head, in the page of that position.
  int64_t place_of(int64_t position) const {
    return (pages_[position / args_.page_tokens] * args_.groups + group_) *
           paged_elements(args_.page_tokens, args_.head_size) / 2;
  }
  const uint32_t* keys_of(int64_t position) const {
    return static_cast<const uint32_t*>(args_.keys) + place_of(position);
  }
  const uint32_t* values_of(int64_t position) const {
    return static_cast<const uint32_t*>(args_.values) + place_of(position);
  }
  void begin(Row& row, int64_t number, int64_t token, int64_t member);
  void finish(const Row& row, int64_t number, int64_t token) const;
  Block block_of(int64_t base, int64_t first, int64_t last);
  Block copy_of(int64_t base, int64_t first, int64_t last);
  bool are_finite(const uint32_t* values, int64_t first, int64_t last) const;
  void hide(uint32_t* values, int64_t first, int64_t last) const;
  template <bool kPlain>
  void weigh(Row& row, int64_t number, int64_t base, int64_t first_vector, int64_t last_vector);
  void multiply_block(Row* rows, int64_t first_row, int64_t end, int64_t base, const Block& block, int64_t first,
                      int64_t last);
  void attend_block(Row* rows, int64_t first_row, int64_t end, int64_t base);

  const PagedAttention& args_;
  const int32_t* const pages_;
  const int64_t group_;
  const int64_t num_lanes_;  // for the channels of a head
  const Products products_;
  float* total(int64_t row) const { return scratch_.totals + row * num_lanes_; }
  uint32_t* query(int64_t row) const { return scratch_.queries + row * num_pairs(); }
  Scratch& scratch_;
  int64_t last_of_all_ = -1;  // the last position that a row sees
};

template <class Products>
void PagedBlocks<Products>::begin(Row& row, int64_t number, int64_t token, int64_t member) {
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
template <class Products>
void PagedBlocks<Products>::finish(const Row& row, int64_t number, int64_t token) const {
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

// The block from `base` on, of which positions first to last are wanted; the others may hold anything.
template <class Products>
Block PagedBlocks<Products>::block_of(int64_t base, int64_t first, int64_t last) {
  if (args_.page_tokens == kBlock) return {keys_of(base), values_of(base)};
  return copy_of(base, first, last);
}

template <class Products>
Block PagedBlocks<Products>::copy_of(int64_t base, int64_t first, int64_t last) {
  const int64_t size = std::min(args_.page_tokens, kBlock);
  for (int64_t position = first / size * size; position <= last; position += size) {
    const auto words = static_cast<size_t>(size) * sizeof(uint32_t);
    for (int64_t pair = 0; pair < num_pairs(); ++pair)
      std::memcpy(scratch_.keys + pair * kBlock + position - base, keys_of(position) + pair * args_.page_tokens, words);
    std::memcpy(scratch_.values + (position - base) / 2 * num_lanes_, values_of(position),
                words / 2 * static_cast<size_t>(num_lanes_));
  }
  return {scratch_.keys, scratch_.values};
}

// Of positions first to last, counted from the beginning of the block.
template <class Products>
bool PagedBlocks<Products>::are_finite(const uint32_t* values, int64_t first, int64_t last) const {
  const __m512i exponent = _mm512_set1_epi16(0x7F80);
  for (int64_t position = first; position <= last; ++position) {
    const __mmask32 half = position % 2 == 0 ? 0x55555555 : 0xAAAAAAAA;
    for (int64_t lane = 0; lane < num_lanes_; lane += 16) {
      const __m512i words = _mm512_load_si512(values + position / 2 * num_lanes_ + lane);
      if (_mm512_mask_cmpeq_epi16_mask(half, _mm512_and_si512(words, exponent), exponent) != 0) return false;
    }
  }
  return true;
}

// They become zero.
template <class Products>
void PagedBlocks<Products>::hide(uint32_t* values, int64_t first, int64_t last) const {
  for (int64_t position = first; position <= last; ++position)
    for (int64_t lane = 0; lane < num_lanes_; ++lane)
      values[position / 2 * num_lanes_ + lane] &= position % 2 == 0 ? 0xFFFF0000 : 0xFFFF;
}

// Scores become weights. kPlain: the row sees all of the block, and has neither slope nor bias.
template <class Products>
template <bool kPlain>
void PagedBlocks<Products>::weigh(Row& row, int64_t number, int64_t base, int64_t first_vector, int64_t last_vector) {
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
  for (int64_t v = kPlain ? 0 : first_vector; v <= (kPlain ? kVectors - 1 : last_vector); ++v) {
    __m512 exponent = _mm512_mul_ps(_mm512_load_ps(scores + 16 * v), scale);
    if constexpr (kPlain) {
      seen[v] = 0xFFFF;
    } else {
      const int64_t start = base + 16 * v;
      const __m512i position = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int32_t>(start)), Math::lane_numbers());
      seen[v] = Math::between(position, first, last);
      const __m512 distance =
          _mm512_cvtepi32_ps(_mm512_sub_epi32(position, _mm512_set1_epi32(static_cast<int32_t>(row.position))));
      exponent = _mm512_fmadd_ps(slope, distance, exponent);
      if (row.bias != nullptr)
        exponent = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(seen[v], row.bias + start - row.position),
                                   _mm512_set1_ps(kLog2E), exponent);
    }
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
  scratch_.shrink[number] = _mm512_cvtss_f32(tile_loops::exp2<Math>(_mm512_set1_ps(row.largest - largest)));
  row.of_weights = row.of_weights * scratch_.shrink[number] + sum;
  row.largest = largest;
}

// What rows first_row to end - 1 see of the block from `base` on.
template <class Products>
void PagedBlocks<Products>::attend_block(Row* rows, int64_t first_row, int64_t end, int64_t base) {
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
  // Zero times what a row does not see has to be zero; that includes the other halves of the pairs at both ends.
  Block block = block_of(base, first, last);
  const int64_t begin = (first - base) / 2 * 2, unseen = std::min(last, first_of_all - 1) - base,
                again = std::max(first, last_of_all + 1) - base, until = (last - base) | 1;
  if (!are_finite(block.values, begin, unseen) || !are_finite(block.values, again, until)) {
    if (end - first_row > 1) {
      for (int64_t row = first_row; row < end; ++row) attend_block(rows, row, row + 1, base);
      return;
    }
    block = copy_of(base, first, last);
    hide(scratch_.values, begin, unseen);
    hide(scratch_.values, again, until);
  }
  multiply_block(rows, first_row, end, base, block, first - base, last - base);
}

// first, last: the positions of the block that some row sees.
template <class Products>
void PagedBlocks<Products>::multiply_block(Row* rows, int64_t first_row, int64_t end, int64_t base, const Block& block,
                                           int64_t first, int64_t last) {
  const Block none, next = args_.page_tokens == kBlock && base + kBlock <= last_of_all_
                               ? Block{keys_of(base + kBlock), values_of(base + kBlock)}
                               : none;
  const int64_t first_vector = first / 16, last_vector = last / 16, first_pair = first / 2, last_pair = last / 2;
  products_.score(scratch_, {first_row, end}, block, next, first_vector, last_vector);
  const bool is_plain = args_.slopes == nullptr && args_.relative_bias == nullptr;
  for (int64_t row = first_row; row < end; ++row) {
    if (is_plain && rows[row].first_key <= base && rows[row].last_key >= base + kBlock - 1)
      weigh<true>(rows[row], row, base, first_vector, last_vector);
    else
      weigh<false>(rows[row], row, base, first_vector, last_vector);
  }
  products_.add_values(scratch_, {first_row, end}, block, next, first_pair, last_pair);
}

template <class Products>
void PagedBlocks<Products>::attend(int64_t first_token, int64_t first_row, int64_t count) {
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

// Of `count` tokens of one sequence from `first` on, and the query heads of one group.
template <class Products>
void attend_to_blocks(const PagedAttention& args, int64_t first, int64_t count, int64_t group) {
  // Not part of every thread's stack, as it would be as an object of the thread.
  static thread_local const std::unique_ptr<Scratch> scratch(new Scratch);
  PagedBlocks<Products> blocks(args, args.tokens[first].pages, group, *scratch);
  const int64_t rows = count * args.queries;
  for (int64_t row = 0; row < rows; row += kPagedRows)
    blocks.attend(first, row, std::min<int64_t>(kPagedRows, rows - row));
}

}  // namespace
}  // namespace espalier::kernels::avx512bf16
