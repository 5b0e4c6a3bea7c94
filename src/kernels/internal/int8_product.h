// The products of fp32 rows with a block of rows of int8 weights, one unit for each instruction set.
#pragma once

#include <cstdint>

namespace espalier::kernels {

// y[token][output] = the sum over inputs of x * number, times the row's scale.
struct Int8Product {
  const float* x;      // [tokens, inputs]
  const int8_t* rows;  // [outputs, inputs + kInt8ScaleBytes]
  float* y;            // [tokens, outputs]
  int64_t tokens, outputs, inputs;
};
inline constexpr int64_t kInt8ScaleBytes = 4;
inline constexpr int64_t kInt8Block = 16;  // outputs of one call, but for the last

namespace generic {
void int8_product(const Int8Product& product, int64_t block);
}
namespace neon {
void int8_product(const Int8Product& product, int64_t block);
}
namespace avx2 {
void int8_product(const Int8Product& product, int64_t block);
}
namespace avx512 {
void int8_product(const Int8Product& product, int64_t block);
}

}  // namespace espalier::kernels
