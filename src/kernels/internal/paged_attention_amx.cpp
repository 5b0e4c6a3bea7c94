// Attention to keys and values in pages on AMX tiles (paged_blocks_avx512.h): pages lie as tiles take them. Sixteen
// rows at a time; rows that were not asked for are computed from stale memory and never read.
#include "kernels/internal/paged_blocks_avx512.h"
#include "kernels/internal/tile_config_amx.h"

namespace espalier::kernels::amx {
namespace {

using avx512bf16::Block;
using avx512bf16::kBlock;
using avx512bf16::paged_lanes;
using avx512bf16::Rows;
using avx512bf16::Scratch;

constexpr int64_t kTile = 16, kPositionPairs = kBlock / 2, kLine = 64;

// Tiles: 0 to 3 sums; 4 rows and 6 keys or values, of 16 pairs; 5 and 7 the same of the pairs that are left of a head.
class TileProducts {
 public:
  explicit TileProducts(const PagedAttention& args)
      : pairs_((args.head_size + 1) / 2), lanes_(paged_lanes(args.head_size)) {
    TileConfig config;
    if (const int64_t left = pairs_ % kTile; left > 0) {
      config.bytes_per_row[5] = static_cast<uint16_t>(left * 4);
      config.rows[7] = static_cast<uint8_t>(left);
    }
    load_config(config);
  }
  ~TileProducts() { _tile_release(); }
  TileProducts(const TileProducts&) = delete;
  TileProducts& operator=(const TileProducts&) = delete;

  // All vectors of the block: what those that are not wanted give is not read.
  void score(Scratch& scratch, Rows rows, const Block& block, const Block& next, int64_t, int64_t) const {
    order_memory();
    for (int64_t row = rows.begin / kTile * kTile; row < rows.end; row += kTile) {
      const uint32_t* const queries = scratch.queries + row * pairs_;
      clear_sums();
      int64_t pair = 0;
      for (; pair + kTile <= pairs_; pair += kTile) {
        if (row <= rows.begin) fetch(next.keys, pair * kBlock, kTile * kBlock);
        _tile_loadd(4, queries + pair, pairs_ * 4);
        add_keys(block.keys + pair * kBlock);
      }
      if (pair < pairs_) {
        if (row <= rows.begin) fetch(next.keys, pair * kBlock, (pairs_ - pair) * kBlock);
        _tile_loadd(5, queries + pair, pairs_ * 4);
        add_last_keys(block.keys + pair * kBlock);
      }
      store<4>(scratch.scores[row], kBlock);
    }
    order_memory();
  }

  void add_values(Scratch& scratch, Rows rows, const Block& block, const Block& next, int64_t first_pair,
                  int64_t last_pair) const {
    for (int64_t row = rows.begin; row < rows.end; ++row) shrink(scratch, row);
    const uint32_t* values[kPositionPairs / kTile];
    for (int64_t step = 0; step < kPositionPairs / kTile; ++step)
      values[step] = values_of(scratch, block, step, first_pair, last_pair);
    order_memory();
    for (int64_t row = rows.begin / kTile * kTile; row < rows.end; row += kTile) {
      if (row <= rows.begin) fetch(next.values, 0, kPositionPairs * lanes_);
      for (int64_t lane = 0; lane < lanes_; lane += 4 * kTile) switch (std::min<int64_t>(4, (lanes_ - lane) / kTile)) {
          case 1: add_lanes<1>(scratch, rows, row, lane, values); break;
          case 2: add_lanes<2>(scratch, rows, row, lane, values); break;
          case 3: add_lanes<3>(scratch, rows, row, lane, values); break;
          default: add_lanes<4>(scratch, rows, row, lane, values);
        }
    }
  }

 private:
  template <int kTiles>
  static void load(const float* sums, int64_t stride) {
    _tile_loadd(0, sums, stride * 4);
    if constexpr (kTiles > 1) _tile_loadd(1, sums + kTile, stride * 4);
    if constexpr (kTiles > 2) _tile_loadd(2, sums + 2 * kTile, stride * 4);
    if constexpr (kTiles > 3) _tile_loadd(3, sums + 3 * kTile, stride * 4);
  }
  template <int kTiles>
  static void store(float* sums, int64_t stride) {
    _tile_stored(0, sums, stride * 4);
    if constexpr (kTiles > 1) _tile_stored(1, sums + kTile, stride * 4);
    if constexpr (kTiles > 2) _tile_stored(2, sums + 2 * kTile, stride * 4);
    if constexpr (kTiles > 3) _tile_stored(3, sums + 3 * kTile, stride * 4);
  }
  static void add_keys(const uint32_t* keys) {
    _tile_loadd(6, keys, kBlock * 4);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(6, keys + kTile, kBlock * 4);
    _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(6, keys + 2 * kTile, kBlock * 4);
    _tile_dpbf16ps(2, 4, 6);
    _tile_loadd(6, keys + 3 * kTile, kBlock * 4);
    _tile_dpbf16ps(3, 4, 6);
  }
  static void add_last_keys(const uint32_t* keys) {
    _tile_loadd(7, keys, kBlock * 4);
    _tile_dpbf16ps(0, 5, 7);
    _tile_loadd(7, keys + kTile, kBlock * 4);
    _tile_dpbf16ps(1, 5, 7);
    _tile_loadd(7, keys + 2 * kTile, kBlock * 4);
    _tile_dpbf16ps(2, 5, 7);
    _tile_loadd(7, keys + 3 * kTile, kBlock * 4);
    _tile_dpbf16ps(3, 5, 7);
  }
  template <int kTiles>
  void add_step(const uint32_t* weights, const uint32_t* values) const {
    _tile_loadd(4, weights, kPositionPairs * 4);
    _tile_loadd(6, values, lanes_ * 4);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kTiles > 1) {
      _tile_loadd(6, values + kTile, lanes_ * 4);
      _tile_dpbf16ps(1, 4, 6);
    }
    if constexpr (kTiles > 2) {
      _tile_loadd(6, values + 2 * kTile, lanes_ * 4);
      _tile_dpbf16ps(2, 4, 6);
    }
    if constexpr (kTiles > 3) {
      _tile_loadd(6, values + 3 * kTile, lanes_ * 4);
      _tile_dpbf16ps(3, 4, 6);
    }
  }

  // Adds to the totals of those of the 16 rows from `row` on that are wanted.
  template <int kTiles>
  void add_lanes(Scratch& scratch, Rows rows, int64_t row, int64_t lane, const uint32_t* const* values) const {
    float* const totals = scratch.totals + row * lanes_ + lane;
    load<kTiles>(totals, lanes_);
    for (int64_t step = 0; step < kPositionPairs / kTile; ++step)
      if (values[step] != nullptr) add_step<kTiles>(scratch.weights[row] + step * kTile, values[step] + lane);
    if (row >= rows.begin && row + kTile <= rows.end) return store<kTiles>(totals, lanes_);
    alignas(64) float sums[kTile][4 * kTile];
    store<kTiles>(sums[0], 4 * kTile);
    order_memory();
    for (int64_t i = std::max(row, rows.begin) - row; i < std::min(row + kTile, rows.end) - row; ++i)
      std::memcpy(totals + i * lanes_, sums[i], kTiles * kTile * sizeof(float));
  }

  void shrink(Scratch& scratch, int64_t row) const {
    const __m512 by = _mm512_set1_ps(scratch.shrink[row]);
    for (int64_t lane = 0; lane < lanes_; lane += kTile) {
      float* const total = scratch.totals + row * lanes_ + lane;
      _mm512_store_ps(total, _mm512_mul_ps(_mm512_load_ps(total), by));
    }
  }

  // Of 16 pairs of positions; those before first_pair and after last_pair as zeros. Null: none of them is wanted.
  const uint32_t* values_of(Scratch& scratch, const Block& block, int64_t step, int64_t first_pair,
                            int64_t last_pair) const {
    const int64_t begin = step * kTile, end = begin + kTile;
    const int64_t first = std::max(begin, first_pair), last = std::min(end - 1, last_pair);
    if (first > last) return nullptr;
    if (first == begin && last == end - 1) return block.values + begin * lanes_;
    uint32_t* const to = scratch.padded + begin * lanes_;
    std::memset(to, 0, static_cast<size_t>(kTile * lanes_) * sizeof(uint32_t));
    std::memcpy(to + (first - begin) * lanes_, block.values + first * lanes_,
                static_cast<size_t>((last - first + 1) * lanes_) * sizeof(uint32_t));
    return to;
  }

  static void fetch(const uint32_t* from, int64_t begin, int64_t count) {
    if (from == nullptr) return;
    const char* const bytes = reinterpret_cast<const char*>(from + begin);
    for (int64_t at = 0; at < count * 4; at += kLine) _mm_prefetch(bytes + at, _MM_HINT_T0);
  }

  int64_t pairs_, lanes_;
};

}  // namespace

void paged_attention_bf16(const PagedAttention& args, int64_t first, int64_t count, int64_t group) {
  avx512bf16::attend_to_blocks<TileProducts>(args, first, count, group);
}

}  // namespace espalier::kernels::amx
