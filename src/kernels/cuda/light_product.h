// One matrix product by cublasLt, with what it adds in the same pass.
//
// The algorithm is what cublasLt's heuristic names first for a shape, its types and the alignment of its memory; it is
// asked once for each. Sums run in fp32 to the end: an algorithm that would keep parts of them in a shorter type is not
// taken. The same call gives the same bits.
#pragma once

#include <cublasLt.h>

#include <cstdint>

namespace espalier::cuda {

// Column by column, as cuBLAS sees memory: result [rows, columns] = op(a) op(b), plus `bias` or what the result was.
struct LightProduct {
  struct Operand {
    const void* data;
    cublasOperation_t operation;
    int64_t rows, columns;  // as stored, without gaps
    cudaDataType_t type;
    const float* scale = nullptr;  // of fp8: on the device, multiplies the values
  };
  Operand a, b;
  void* result;
  cudaDataType_t result_type;
  int64_t rows, columns;
  bool add;          // the result is added to
  const void* bias;  // [rows], of the type of the result, added to every column; nullptr: none
};

// On the current stream. False where cublasLt has no algorithm for it: then nothing was done.
bool multiply_light(const LightProduct& product);

}  // namespace espalier::cuda
