#include "kernels/cuda/fp8_products.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "kernels/cuda/light_product.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/stream.h"

namespace espalier::cuda {
namespace {

constexpr int64_t kMultiple = 16;  // of sizes and addresses

cudaDataType_t fp8_type(const at::Tensor& codes) {
  if (codes.scalar_type() == at::kFloat8_e4m3fn) return CUDA_R_8F_E4M3;
  ESPALIER_CHECK(codes.scalar_type() == at::kFloat8_e5m2, "codes of ", codes.scalar_type());
  return CUDA_R_8F_E5M2;
}

// Exact: bf16 holds every number of both formats, and a scale has no mantissa.
at::Tensor widened(const Fp8Factor& factor) { return factor.codes.to(at::kFloat).mul_(factor.scale).to(at::kBFloat16); }

void multiply_widened(const Fp8Factor& a, const Fp8Factor& b, const at::Tensor& bias, const at::Tensor& to, bool add) {
  if (bias.defined())
    multiply_transposed_with_bias(widened(a), widened(b), bias, to);
  else
    multiply_transposed(widened(a), widened(b), to, add);
}

bool are_multiples(const at::Tensor& matrix) {
  return matrix.size(0) % kMultiple == 0 && matrix.size(1) % kMultiple == 0 &&
         is_aligned(matrix.const_data_ptr(), kMultiple);
}

// Column by column, as cublasLt sees memory: to^T [n, m] = b a^T, where b is transposed and a^T is not. It takes fp8
// no other way before Blackwell.
LightProduct light_product(const Fp8Factor& a, const Fp8Factor& b, const at::Tensor& bias, const at::Tensor& to,
                           bool add) {
  const int64_t depth = a.codes.size(1), rows = to.size(1), columns = to.size(0);
  return {.a = {.data = b.codes.const_data_ptr(),
                .operation = CUBLAS_OP_T,
                .rows = depth,
                .columns = rows,
                .type = fp8_type(b.codes),
                .scale = b.scale.const_data_ptr<float>()},
          .b = {.data = a.codes.const_data_ptr(),
                .operation = CUBLAS_OP_N,
                .rows = depth,
                .columns = columns,
                .type = fp8_type(a.codes),
                .scale = a.scale.const_data_ptr<float>()},
          .result = to.mutable_data_ptr(),
          .result_type = to.scalar_type() == at::kFloat ? CUDA_R_32F : CUDA_R_16BF,
          .rows = rows,
          .columns = columns,
          .add = add,
          .bias = bias.defined() ? bias.const_data_ptr() : nullptr};
}

void check_factors(const Fp8Factor& a, const Fp8Factor& b, const at::Tensor& bias, const at::Tensor& to, bool add) {
  ESPALIER_CHECK(a.codes.is_contiguous() && b.codes.is_contiguous() && to.is_contiguous());
  ESPALIER_CHECK(a.codes.size(0) == to.size(0) && b.codes.size(0) == to.size(1) && a.codes.size(1) == b.codes.size(1),
                 a.codes.sizes(), " by ", b.codes.sizes(), " transposed, to ", to.sizes());
  ESPALIER_CHECK(to.scalar_type() == at::kBFloat16 || (to.scalar_type() == at::kFloat && !bias.defined()), "to ",
                 to.scalar_type(), bias.defined() ? " with a bias" : "");
  ESPALIER_CHECK(!bias.defined() || (!add && bias.scalar_type() == to.scalar_type() && bias.size(0) == to.size(1)));
}

}  // namespace

const char* multiply_codes(const Fp8Factor& a, const Fp8Factor& b, const at::Tensor& bias, const at::Tensor& to,
                           bool add) {
  check_factors(a, b, bias, to, add);
  if (to.numel() == 0) return nullptr;
  const char* why = nullptr;
  if (!multiplies_fp8())
    why = "the GPU has none, which begin with compute capability 8.9";
  else if (a.codes.size(1) == 0 || !are_multiples(a.codes) || !are_multiples(b.codes))
    why = "tensor cores take tokens, inputs and outputs in multiples of 16, and a layer has others";
  else if (!multiply_light(light_product(a, b, bias, to, add)))
    why = "cublasLt has no algorithm for the sizes of a layer";
  if (why != nullptr) multiply_widened(a, b, bias, to, add);
  return why;
}

}  // namespace espalier::cuda
