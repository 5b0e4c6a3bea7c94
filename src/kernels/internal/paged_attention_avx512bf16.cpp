// Attention to keys and values in pages by the instruction for pairs of bf16 (paged_blocks_avx512.h).
#include "kernels/internal/paged_blocks_avx512.h"

namespace espalier::kernels::avx512bf16 {
namespace {

constexpr int kRowsAtOnce = 4;

__m512i low_halves(const uint32_t* words) {
  return _mm512_and_si512(_mm512_load_si512(words), _mm512_set1_epi32(0xFFFF));
}

// c[r][v] += row r of `a` times columns 16 v to 16 v + 15 of `b`, both in `count` pairs. `next`, unless it is nullptr:
// what lies like b in the next block is fetched towards the processor, whose own prefetching ends with a page.
template <int kRows, int kColumns>
inline void add_products(const uint32_t* a, int64_t a_stride, const uint32_t* b, int64_t b_stride, int64_t count,
                         const uint32_t* next, __m512 (&c)[kRows][kColumns]) {
  for (int64_t i = 0; i < count; ++i) {
    __m512bh right[kColumns];
    for (int v = 0; v < kColumns; ++v) {
      if (next != nullptr) _mm_prefetch(reinterpret_cast<const char*>(next + i * b_stride + 16 * v), _MM_HINT_T0);
      right[v] = reinterpret_cast<__m512bh>(_mm512_load_si512(b + i * b_stride + 16 * v));
    }
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

class VectorProducts {
 public:
  explicit VectorProducts(const PagedAttention& args)
      : head_size_(args.head_size), num_pairs_((args.head_size + 1) / 2), num_lanes_(paged_lanes(args.head_size)) {}

  void score(Scratch& scratch, Rows rows, const Block& block, const Block& next, int64_t first_vector,
             int64_t last_vector) const {
    for_rows(rows, next, [&](auto count, int64_t row, const Block& fetched) {
      score_rows<decltype(count)::value>(scratch, row, block, fetched, first_vector, last_vector);
    });
  }
  void add_values(Scratch& scratch, Rows rows, const Block& block, const Block& next, int64_t first_pair,
                  int64_t last_pair) const {
    for_rows(rows, next, [&](auto count, int64_t row, const Block& fetched) {
      add_values_of_rows<decltype(count)::value>(scratch, row, block, fetched, first_pair, last_pair);
    });
  }

 private:
  // body(number of rows, a constant; the first of them; what to fetch meanwhile).
  template <class Body>
  static void for_rows(Rows rows, const Block& next, const Body& body) {
    const Block none;
    int64_t row = rows.begin;
    for (; row + kRowsAtOnce <= rows.end; row += kRowsAtOnce)
      body(std::integral_constant<int, kRowsAtOnce>{}, row, row == rows.begin ? next : none);
    for (; row < rows.end; ++row) body(std::integral_constant<int, 1>{}, row, row == rows.begin ? next : none);
  }

  template <int kRows>
  void score_rows(Scratch& scratch, int64_t row, const Block& block, const Block& next, int64_t first_vector,
                  int64_t last_vector) const {
    with_columns(last_vector - first_vector + 1, [&](auto columns) {
      constexpr int kColumns = decltype(columns)::value;
      __m512 products[kRows][kColumns];
      for (auto& of_row : products)
        for (__m512& sum : of_row) sum = _mm512_setzero_ps();
      add_products<kRows, kColumns>(scratch.queries + row * num_pairs_, num_pairs_, block.keys + 16 * first_vector,
                                    kBlock, num_pairs_, next.keys == nullptr ? nullptr : next.keys + 16 * first_vector,
                                    products);
      for (int r = 0; r < kRows; ++r)
        for (int v = 0; v < kColumns; ++v)
          _mm512_store_ps(&scratch.scores[row + r][16 * (first_vector + v)], products[r][v]);
    });
  }

  template <int kRows>
  void add_values_of_rows(Scratch& scratch, int64_t row, const Block& block, const Block& next, int64_t first_pair,
                          int64_t last_pair) const {
    for (int64_t channel = 0; channel < head_size_; channel += kBlock)
      with_columns(std::min<int64_t>(kVectors, (head_size_ - channel + 15) / 16), [&](auto columns) {
        constexpr int kColumns = decltype(columns)::value;
        float* const totals = scratch.totals + row * num_lanes_ + channel;
        __m512 sums[kRows][kColumns];
        for (int r = 0; r < kRows; ++r)
          for (int v = 0; v < kColumns; ++v)
            sums[r][v] = _mm512_mul_ps(_mm512_load_ps(totals + r * num_lanes_ + 16 * v),
                                       _mm512_set1_ps(scratch.shrink[row + r]));
        const int64_t from = first_pair * num_lanes_ + channel;
        add_products<kRows, kColumns>(&scratch.weights[row][first_pair], kBlock / 2, block.values + from, num_lanes_,
                                      last_pair - first_pair + 1, next.values == nullptr ? nullptr : next.values + from,
                                      sums);
        for (int r = 0; r < kRows; ++r)
          for (int v = 0; v < kColumns; ++v) _mm512_store_ps(totals + r * num_lanes_ + 16 * v, sums[r][v]);
      });
  }

  int64_t head_size_, num_pairs_, num_lanes_;
};

}  // namespace

void append_pairs(const PagedAttention& args, int64_t count, int64_t group) {
  const int64_t lanes = paged_lanes(args.head_size), elements = paged_elements(args.page_tokens, args.head_size);
  const auto bytes = static_cast<size_t>(args.head_size) * sizeof(uint16_t);
  alignas(64) uint16_t key[kMaxPagedHeadSize] = {}, value[kMaxPagedHeadSize] = {};  // zeros after the head's channels
  for (int64_t token = 0; token < count; ++token) {
    const PagedToken& of = args.tokens[token];
    const auto* const from = static_cast<const uint16_t*>(args.qkv) +
                             ((token * args.groups + group) * args.parts + args.queries) * args.head_size;
    std::memcpy(key, from, bytes);
    std::memcpy(value, from + args.head_size, bytes);
    const int64_t in_page = of.position % args.page_tokens,
                  place = (of.pages[of.position / args.page_tokens] * args.groups + group) * elements / 2;
    auto* const keys = static_cast<uint32_t*>(args.keys) + place + in_page;
    for (int64_t pair = 0; 2 * pair < args.head_size; ++pair)
      std::memcpy(keys + pair * args.page_tokens, key + 2 * pair, sizeof(uint32_t));
    auto* const values = static_cast<uint32_t*>(args.values) + place + in_page / 2 * lanes;
    for (int64_t lane = 0; lane < lanes; lane += 16) {
      __m512i words = _mm512_cvtepu16_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(value + lane)));
      if (in_page % 2 != 0) words = _mm512_or_si512(_mm512_slli_epi32(words, 16), low_halves(values + lane));
      _mm512_store_si512(values + lane, words);
    }
  }
}

void paged_attention_bf16(const PagedAttention& args, int64_t first, int64_t count, int64_t group) {
  attend_to_blocks<VectorProducts>(args, first, count, group);
}

}  // namespace espalier::kernels::avx512bf16
