// Codes of fp8 (spec/fp8.h) of a bf16 matrix: its largest magnitude by way of one number for each of some blocks, then
// its codes, row by row as it lies in memory, or column by column, or both in one pass. A tile of the matrix turns in
// shared memory.
#include "kernels/cuda/vectors.cuh"
#include "spec/fp8.h"

namespace espalier::cuda {
namespace {

using Bits = spec::Fp8Bits<Bf16>;

constexpr int kCount = kPack<Bf16>;
constexpr int kTile = 64;                   // rows and columns of a block
constexpr int kTilePacks = kTile / kCount;  // of a row
constexpr int kPiece = 16;                  // codes of a column that a thread stores at once
constexpr int kPieces = kTile / kPiece;     // of a column
constexpr int64_t kLeastOfBlock = 1 << 14;  // elements whose largest magnitude a block finds

__device__ inline uint32_t bits_of(Bf16 value) {
  uint16_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Magnitudes as the whole numbers that their bits are, which an fp32 holds: infinity and NaN come last, as they do not
// among floats.
template <bool kWhole>
__global__ void __launch_bounds__(kThreads) largest_magnitude_kernel(const Bf16* x, int64_t count, float* parts) {
  float largest = 0;
  const int64_t stride = int64_t{gridDim.x} * kThreads * kCount;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kCount; i < count; i += stride) {
    const auto pack = load_pack<kWhole>(x + i, count - i);
    for (int element = 0; element < kCount; ++element)
      largest = fmaxf(largest, static_cast<float>(bits_of(pack.of[element]) & 0x7FFF));
  }
  largest = block_max(largest);
  if (threadIdx.x == 0) parts[blockIdx.x] = largest;
}

template <bool kWhole>
__global__ void __launch_bounds__(kThreads)
    fp8_codes_kernel(Fp8Codes args, int64_t rows, int64_t columns, int64_t parts, int64_t tiles_across) {
  __shared__ uint32_t turned[kTile][kTile / 4 + 1];  // codes of each column; one word more: other banks
  const float largest = block_max(threadIdx.x < parts ? args.parts[threadIdx.x] : 0);
  const spec::Fp8Grid grid = Bits::grid_of(static_cast<uint32_t>(largest), args.format);
  if (blockIdx.x == 0 && threadIdx.x == 0) *args.scale = grid.inverse;

  const int64_t first_row = blockIdx.x / tiles_across * kTile, first_column = blockIdx.x % tiles_across * kTile;
  for (int at = threadIdx.x; at < kTile * kTilePacks; at += kThreads) {
    const int tile_row = at / kTilePacks, tile_column = at % kTilePacks * kCount;
    const int64_t row = first_row + tile_row, column = first_column + tile_column;
    if (row >= rows || column >= columns) continue;
    const auto x = load_pack<kWhole>(static_cast<const Bf16*>(args.x) + row * columns + column, columns - column);
    Pack<uint8_t, kCount> codes;
    for (int i = 0; i < kCount; ++i) codes.of[i] = Bits::to_code(bits_of(x.of[i]) << 16, grid);
    if (args.codes != nullptr) store_pack<kWhole>(args.codes + row * columns + column, columns - column, codes);
    for (int i = 0; i < kCount; ++i) reinterpret_cast<uint8_t*>(turned[tile_column + i])[tile_row] = codes.of[i];
  }
  if (args.transposed == nullptr) return;
  __syncthreads();
  const int tile_column = threadIdx.x / kPieces, tile_row = threadIdx.x % kPieces * kPiece;
  const int64_t row = first_row + tile_row, column = first_column + tile_column;
  if (row >= rows || column >= columns) return;
  Pack<uint8_t, kPiece> piece;
  memcpy(piece.of, &turned[tile_column][tile_row / 4], sizeof piece.of);
  store_pack<kWhole>(args.transposed + column * rows + row, rows - row, piece);
}

}  // namespace

int64_t fp8_parts(int64_t count) {
  const int64_t blocks = (count + kLeastOfBlock - 1) / kLeastOfBlock;
  return blocks < kThreads ? blocks : kThreads;
}

void fp8_codes(const Fp8Codes& args, int64_t rows, int64_t columns, Stream stream) {
  static_assert(kThreads == kTile * kPieces);
  const int64_t count = rows * columns, parts = fp8_parts(count);
  const auto* const x = static_cast<const Bf16*>(args.x);
  with_bool(are_whole<Bf16>(count, {x}), [&](auto whole) {
    launch("largest_magnitude", largest_magnitude_kernel<whole.value>, {num_blocks(parts, 1), kThreads, 0, stream}, x,
           count, args.parts);
  });
  const bool is_whole = rows % kPiece == 0 && columns % kPiece == 0 && is_aligned(x) && is_aligned(args.codes) &&
                        is_aligned(args.transposed);
  const int64_t across = (columns + kTile - 1) / kTile, down = (rows + kTile - 1) / kTile;
  with_bool(is_whole, [&](auto whole) {
    launch("fp8_codes", fp8_codes_kernel<whole.value>, {num_blocks(across * down, 1), kThreads, 0, stream}, args, rows,
           columns, parts, across);
  });
}

}  // namespace espalier::cuda
