// Tiles of operands in shared memory and their products on tensor cores, for attention of bf16 and fp16.
//
// Fragments of a warp: kM blocks of 16 rows by kN columns in blocks of 8, [kM][kN / 8][4]. A lane has of each block, at
// element e, row lane / 4 + 8 (e / 2) and column 2 (lane % 4) + e % 2. Two blocks of columns that follow each other
// are, rounded, a block of 16 x 16 of a left factor: products go from one to the next in registers.
#pragma once

#include "kernels/cuda/attention_pair.cuh"

namespace espalier::cuda {

template <int kM, int kN>
using Fragments = float[kM][kN / 8][4];
template <int kM, int kN>
using RoundedFragments = uint32_t[kM][kN / 16][4];

// Features are in pieces of 32: a smaller head has those beyond it as zeros, up to a whole piece, and no more.
inline constexpr int kPiece = 32;

// Rows of kFeatures elements of 2 bytes. 16 bytes of a row are one access; in row r they change places, by r % 8, so
// that the 8 rows of a matrix are in different banks.
//
// A tile begins at a multiple of its rows' bytes. So the number of an access is some bits of an address, and one
// address of a lane, of access 0 or 1 of its row, leads to all others: even numbers come by exclusive or, and 8 rows
// more by an addition.
template <int kRows_, int kFeatures>
struct SharedTile {
  static constexpr int kRows = kRows_;
  static constexpr int kRowBytes = kFeatures * 2, kBytes = kRows * kRowBytes;
  static_assert(kRowBytes % 128 == 0 && kSharedAlignment % kRowBytes == 0);
  char* memory;
  SharedAddress begin;

  __device__ explicit SharedTile(char* memory) : memory(memory), begin(shared_address(memory)) {}
  __device__ static int offset(int row, int access) { return row * kRowBytes + ((access ^ (row & 7)) << 4); }
  // first_row: a multiple of 8.
  __device__ SharedAddress of_lane(int first_row, int row, int access) const {
    return begin + first_row * kRowBytes + offset(row, access);
  }
  __device__ static SharedAddress at(SharedAddress of_lane, int even_access, int more_rows = 0) {
    return (of_lane ^ (even_access << 4)) + more_rows * kRowBytes;
  }
};

// Begins to copy the positions from `first` on; zeros beyond the last. Every thread of the block calls it.
template <class T, int kThreadsOfBlock, int kRows, int kFeatures>
__device__ void copy_tile(const SharedTile<kRows, kFeatures>& to, const Pair& pair, const AttentionOperand& operand,
                          int first, int positions) {
  constexpr int kAccesses = kFeatures / 8, kRowsAtOnce = kThreadsOfBlock / kAccesses;
  static_assert(kThreadsOfBlock % kAccesses == 0 && kRows % kRowsAtOnce == 0);
  const int thread = thread_read_anew(), access = thread % kAccesses, first_row = thread / kAccesses;
  const int head_size = static_cast<int>(pair.problem.head_size);
  if (access * 8 >= (head_size + kPiece - 1) / kPiece * kPiece) return;
  const T* from = static_cast<const T*>(operand.data) + pair.offset(operand, first + first_row) + access * 8;
  const int64_t step = kRowsAtOnce * operand.position_stride;
  const int rows = access * 8 < head_size ? positions - first : 0;
  // By pointers, that no register holds the distance of each row.
  ESPALIER_UNROLL_4
  for (int row = first_row; row < first_row + kRows; row += kRowsAtOnce, from += step) {
    const int swizzled = kRowsAtOnce % 8 == 0 ? first_row : row;  // as far as its last three bits say
    copy_async_16(to.begin + row * to.kRowBytes + ((access ^ (swizzled & 7)) << 4), from, row < rows);
  }
}

// products = own other^T, of kM blocks of rows of `own` from first_row on and all rows of `other`.
template <class T, int kM, int kN, int kRows, int kFeatures>
__device__ void multiply(Fragments<kM, kN>& products, const SharedTile<kRows, kFeatures>& own, int first_row,
                         const SharedTile<kN, kFeatures>& other, int pieces) {
  const int lane = thread_read_anew() % kWarp;
  const SharedAddress of_own = own.of_lane(first_row, lane % 16, lane / 16);
  const SharedAddress of_other = other.of_lane(0, lane / 16 * 8 + lane % 8, lane / 8 % 2);
  ESPALIER_UNROLL
  for (int m = 0; m < kM; ++m) {
    ESPALIER_UNROLL
    for (int n = 0; n < kN / 8; ++n) {
      ESPALIER_UNROLL
      for (int e = 0; e < 4; ++e) products[m][n][e] = 0;
    }
  }
  ESPALIER_UNROLL
  for (int piece = 0; piece < kFeatures / kPiece; ++piece) {
    if (piece >= pieces) break;
    ESPALIER_UNROLL
    for (int step = 0; step < kPiece / 16; ++step) {
      const int access = piece * (kPiece / 8) + step * 2;
      uint32_t left[kM][4];
      ESPALIER_UNROLL
      for (int m = 0; m < kM; ++m) load_matrices(left[m], own.at(of_own, access, m * 16));
      ESPALIER_UNROLL
      for (int two = 0; two < kN / 16; ++two) {
        uint32_t right[4];
        load_matrices(right, other.at(of_other, access, two * 16));
        const uint32_t first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
        ESPALIER_UNROLL
        for (int m = 0; m < kM; ++m) {
          add_product<T>(products[m][two * 2], left[m], first);
          add_product<T>(products[m][two * 2 + 1], left[m], second);
        }
      }
    }
  }
}

template <class T, int kM, int kN>
__device__ void round(RoundedFragments<kM, kN>& rounded, const Fragments<kM, kN>& values) {
  ESPALIER_UNROLL
  for (int m = 0; m < kM; ++m) {
    ESPALIER_UNROLL
    for (int two = 0; two < kN / 16; ++two) {
      ESPALIER_UNROLL
      for (int part = 0; part < 4; ++part) {
        const float* const of_block = values[m][two * 2 + part / 2];
        rounded[m][two][part] = two_rounded<T>(of_block[part % 2 * 2], of_block[part % 2 * 2 + 1]);
      }
    }
  }
}

// sums += factors other, of kOwn features of `other` from first_feature on.
template <class T, int kM, int kN, int kOwn, int kFeatures>
__device__ void add_products(Fragments<kM, kOwn>& sums, const RoundedFragments<kM, kN>& factors,
                             const SharedTile<kN, kFeatures>& other, int first_feature, int pieces) {
  const int lane = thread_read_anew() % kWarp;
  const SharedAddress of_other = other.of_lane(0, lane % 16, first_feature / 8 + lane / 16);
  ESPALIER_UNROLL
  for (int piece = 0; piece < kOwn / kPiece; ++piece) {
    if (first_feature / kPiece + piece >= pieces) break;
    ESPALIER_UNROLL
    for (int step = 0; step < kN / 16; ++step) {
      ESPALIER_UNROLL
      for (int two = 0; two < kPiece / 16; ++two) {
        uint32_t right[4];
        load_matrices_transposed(right, other.at(of_other, piece * (kPiece / 8) + two * 2, step * 16));
        const uint32_t first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
        const int n = piece * (kPiece / 8) + two * 2;
        ESPALIER_UNROLL
        for (int m = 0; m < kM; ++m) {
          add_product<T>(sums[m][n], factors[m][step], first);
          add_product<T>(sums[m][n + 1], factors[m][step], second);
        }
      }
    }
  }
}

// Rounds sums times the factors of their rows into their place in a tile, by way of which write_tile stores them.
template <class T, int kM, int kOwn, int kRows, int kFeatures>
__device__ void put_rows(const SharedTile<kRows, kFeatures>& to, int first_row, int first_feature,
                         const Fragments<kM, kOwn>& sums, const float (&factors)[kM][2]) {
  const int lane = threadIdx.x % kWarp;
  ESPALIER_UNROLL
  for (int m = 0; m < kM; ++m) {
    ESPALIER_UNROLL
    for (int n = 0; n < kOwn / 8; ++n) {
      ESPALIER_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = first_row + m * 16 + lane / 4 + half * 8;
        char* const place = to.memory + to.offset(row, first_feature / 8 + n) + lane % 4 * 4;
        *reinterpret_cast<uint32_t*>(place) =
            two_rounded<T>(sums[m][n][half * 2] * factors[m][half], sums[m][n][half * 2 + 1] * factors[m][half]);
      }
    }
  }
}

template <class T, int kM, int kOwn, int kRows, int kFeatures>
__device__ void put_rows(const SharedTile<kRows, kFeatures>& to, int first_row, int first_feature,
                         const Fragments<kM, kOwn>& sums, float factor) {
  float factors[kM][2];
  ESPALIER_UNROLL
  for (int m = 0; m < kM; ++m) factors[m][0] = factors[m][1] = factor;
  put_rows<T, kM, kOwn>(to, first_row, first_feature, sums, factors);
}

// Every thread of the block calls it.
template <class T, int kThreadsOfBlock, int kRows, int kFeatures>
__device__ void write_tile(const SharedTile<kRows, kFeatures>& from, const Pair& pair, const AttentionOperand& operand,
                           int first, int positions) {
  constexpr int kAccesses = kFeatures / 8;
  const int access = threadIdx.x % kAccesses;
  if (access * 8 >= pair.problem.head_size) return;
  for (int row = threadIdx.x / kAccesses; row < kRows && first + row < positions; row += kThreadsOfBlock / kAccesses)
    write_16(static_cast<T*>(operand.data) + pair.offset(operand, first + row) + access * 8,
             read_16(from.memory + from.offset(row, access)));
}

}  // namespace espalier::cuda
