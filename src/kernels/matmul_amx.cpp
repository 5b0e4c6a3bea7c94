// bf16 products on AMX tiles (Intel Sapphire Rapids and later): 2 x 2 tiles of C, so that each tile of A and of B that
// is loaded is used twice.
//
// Tile products wait for their operands, and everything else waits for tile products. So a part of A's panel stays in
// the first-level cache while panels of B pass by; the panel of A that comes next is fetched meanwhile; and the sums of
// one panel of B are rounded or added, and written, two rows at a time while those of the next one are computed.
#include <immintrin.h>

#include <algorithm>

#include "kernels/internal/tile_config_amx.h"
#include "kernels/matmul_bf16.h"
#include "kernels/matmul_tile.h"

namespace espalier::kernels {
namespace amx {
namespace {

// Tiles 0-3 are C, 4-5 A, 6-7 B.

// Of A's panel in the first-level cache (48 KiB): as deep as kWholeDepth at once, else in blocks of about kDepthBlock,
// each for kGroup panels of B, whose sums wait in the second level.
constexpr int64_t kWholeDepth = 768, kDepthBlock = 384, kGroup = 8;

constexpr int64_t kTileSums = kPanel * kPanel;

inline int64_t depth_block(int64_t depth) {
  if (depth <= kWholeDepth) return depth;
  const int64_t num_blocks = (depth + kDepthBlock - 1) / kDepthBlock, num_units = depth / kDepthUnit;
  return (num_units + num_blocks - 1) / num_blocks * kDepthUnit;
}

// The panel of A that comes next, fetched or copied evenly over the steps of this one, line by line.
class NextPanel {
 public:
  NextPanel(const PanelProduct& product, int64_t num_parts)
      : row_(product.next_a),
        stride_(product.next_stride),
        units_(product.depth / kDepthUnit),
        rows_left_(row_ == nullptr ? 0 : kPanel),
        lines_((kPanel + num_parts - 1) / num_parts),
        copy_(product.slice == nullptr ? nullptr : product.slice->next_copy) {}
  void some() {
    for (int64_t i = 0; i < lines_ && rows_left_ > 0; ++i) {
      const uint16_t* const line = row_ + unit_ * kDepthUnit;
      if (copy_ == nullptr)
        _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T1);
      else
        _mm512_store_si512(copy_ + unit_ * kBlockElements, _mm512_loadu_si512(line));
      if (++unit_ < units_) continue;
      unit_ = 0;
      row_ += stride_;
      --rows_left_;
      if (copy_ != nullptr) copy_ += kDepthUnit;
    }
  }

 private:
  const uint16_t* row_;
  int64_t stride_, units_, rows_left_, lines_, unit_ = 0;
  uint16_t* copy_;
};

// Tiles 0..3 += A panel * B panel. B passes by with the streaming hint, so that A stays in the first-level cache: 1.84
// instead of 1.33 TFLOP/s at depth 768. `meanwhile` is called once a step.
template <class Meanwhile>
inline void multiply(const PanelProduct& product, const uint16_t* a, const uint16_t* b, int64_t steps,
                     Meanwhile meanwhile) {
  constexpr int64_t kRowBytes = 64;
  const int64_t a_bytes = product.a_stride * 2;
  const uint16_t* lower = a + 16 * product.a_stride;
  for (int64_t step = 0; step < steps; ++step) {
    _tile_stream_loadd(6, b, kRowBytes);
    _tile_loadd(4, a, a_bytes);
    _tile_stream_loadd(7, b + kBlockElements / 2, kRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, lower, a_bytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    b += kBlockElements;
    a += product.a_step;
    lower += product.a_step;
    meanwhile(step);
  }
}

inline void store_tiles(float* c) {
  _tile_stored(0, c, kPanel * 4);
  _tile_stored(1, c + 16, kPanel * 4);
  _tile_stored(2, c + 16 * kPanel, kPanel * 4);
  _tile_stored(3, c + 16 * kPanel + 16, kPanel * 4);
}

inline void load_tiles(const float* c) {
  _tile_loadd(0, c, kPanel * 4);
  _tile_loadd(1, c + 16, kPanel * 4);
  _tile_loadd(2, c + 16 * kPanel, kPanel * 4);
  _tile_loadd(3, c + 16 * kPanel + 16, kPanel * 4);
}

// Rows of the sums of one panel of B that are not written yet: write(sums of the row, row, rows, column, columns).
template <class Write>
class Unwritten {
 public:
  Unwritten(int64_t num_rows, Write write) : num_rows_(num_rows), write_(write), row_(num_rows) {}
  void begin(const float* sums, int64_t column, int64_t columns) {
    sums_ = sums;
    column_ = column;
    columns_ = columns;
    row_ = 0;
  }
  void write_some() {
    if (row_ >= num_rows_) return;
    write_(sums_ + row_ * kPanel, row_, std::min<int64_t>(2, num_rows_ - row_), column_, columns_);
    row_ += 2;
  }
  void write_rest() {
    while (row_ < num_rows_) write_some();
  }

 private:
  int64_t num_rows_;
  Write write_;
  const float* sums_ = nullptr;
  int64_t column_ = 0, columns_ = 0, row_;
};

// Calls `write` for all sums, two rows at a time, and fetch(row, column) before for every second row of each panel.
template <class Fetch, class Write>
inline void for_each_row(const PanelProduct& product, Fetch fetch, Write write) {
  static const TileConfig config;
  load_config(config);
  const DepthSlice* const slice = product.slice;
  const int64_t num_parts = (product.columns + kPanel - 1) / kPanel, block = depth_block(product.depth);
  const int64_t b_stride = slice == nullptr ? product.depth * kPanel : slice->b_stride;
  alignas(64) float partial[kGroup][kTileSums], whole[2][kTileSums];
  int turn = 0;
  Unwritten<Write> unwritten(product.rows, write);
  NextPanel next(product, num_parts);
  for (int64_t first = 0; first < num_parts; first += kGroup) {
    const int64_t last = std::min(num_parts, first + kGroup);
    for (int64_t depth = 0; depth < product.depth; depth += block) {
      const int64_t depths = std::min(block, product.depth - depth);
      const bool begins = depth == 0 && (slice == nullptr || slice->begins);
      const bool ends = depth + depths == product.depth && (slice == nullptr || slice->ends);
      const uint16_t* const a = product.a + depth / kDepthUnit * product.a_step;
      for (int64_t part = first; part < last; ++part) {
        const int64_t column = part * kPanel;
        float* const sums = slice == nullptr ? partial[part - first] : slice->sums + part * kTileSums;
        if (begins)
          clear_sums();
        else
          load_tiles(sums);
        multiply(product, a, product.b + part * b_stride + depth * kPanel, depths / kDepthUnit, [&](int64_t step) {
          unwritten.write_some();
          next.some();
          if (ends && 2 * step < product.rows) fetch(2 * step, column);
        });
        if (!ends) {
          store_tiles(sums);
          continue;
        }
        unwritten.write_rest();
        store_tiles(whole[turn]);
        unwritten.begin(whole[turn], column, std::min(kPanel, product.columns - column));
        turn ^= 1;
      }
    }
  }
  unwritten.write_rest();
  _tile_release();
}

inline void fetch_nothing(int64_t, int64_t) {}

void store(const PanelProduct& product, float* c, int64_t c_stride) {
  for_each_row(product, fetch_nothing,
               [=](const float* sums, int64_t row, int64_t rows, int64_t column, int64_t columns) {
                 write_partial(sums, rows, columns, /*add=*/false, c + row * c_stride + column, c_stride);
               });
}

void add(const PanelProduct& product, float* c, int64_t c_stride) {
  const auto fetch = [=](int64_t row, int64_t column) {
    for (int64_t i = 0; i < 2; ++i) {
      const char* const line = reinterpret_cast<const char*>(c + (row + i) * c_stride + column);
      _mm_prefetch(line, _MM_HINT_T0);
      _mm_prefetch(line + 64, _MM_HINT_T0);
    }
  };
  for_each_row(product, fetch, [=](const float* sums, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    write_partial(sums, rows, columns, /*add=*/true, c + row * c_stride + column, c_stride);
  });
}

void store_packed(const PanelProduct& product, float* c, int64_t c_stride) {
  for_each_row(product, fetch_nothing,
               [=](const float* sums, int64_t row, int64_t rows, int64_t column, int64_t columns) {
                 write_past_caches(sums, rows, columns, c + row * c_stride + column, c_stride);
               });
  _mm_sfence();
}

void store_bf16(const PanelProduct& product, const uint16_t* bias, uint16_t* y, int64_t y_stride) {
  for_each_row(product, fetch_nothing,
               [=](const float* sums, int64_t row, int64_t rows, int64_t column, int64_t columns) {
                 write_bf16(sums, rows, columns, bias == nullptr ? nullptr : bias + column, y + row * y_stride + column,
                            y_stride);
               });
}

void store_sum_bf16(const PanelProduct& product, const Addend& plus, uint16_t* y, int64_t y_stride) {
  for_each_row(
      product, fetch_nothing, [=](const float* sums, int64_t row, int64_t rows, int64_t column, int64_t columns) {
        const Addend here{plus.by_product, plus.by_addend, plus.values + row * plus.stride + column, plus.stride};
        write_sum_bf16(sums, rows, columns, here, y + row * y_stride + column, y_stride);
      });
}

}  // namespace
}  // namespace amx

const Bf16Kernels kAmxKernels = {.has_tiles = true,
                                 .store = amx::store,
                                 .add = amx::add,
                                 .store_bf16 = amx::store_bf16,
                                 .store_sum_bf16 = amx::store_sum_bf16,
                                 .pack_transposed = pack_a_transposed,
                                 .store_packed = amx::store_packed,
                                 .add_packed = amx::add};

}  // namespace espalier::kernels
