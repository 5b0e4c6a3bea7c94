#include "kernels/cuda/products.h"

#include <ATen/cuda/CUDAContext.h>

#include "base/error.h"

namespace espalier::cuda {
namespace {

cudaDataType_t data_type(const at::Tensor& x) {
  if (x.scalar_type() == at::kBFloat16) return CUDA_R_16BF;
  if (x.scalar_type() == at::kHalf) return CUDA_R_16F;
  ESPALIER_CHECK(x.scalar_type() == at::kFloat, "products of ", x.scalar_type());
  return CUDA_R_32F;
}

void check(cublasStatus_t status) {
  ESPALIER_CHECK(status == CUBLAS_STATUS_SUCCESS, "cuBLAS: ", cublasGetStatusString(status));
}

// An operand as cuBLAS sees it: a row-major matrix is its transpose, column by column.
struct Operand {
  const at::Tensor& matrix;
  bool transposed;
  cublasOperation_t operation() const { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }
  int width() const { return static_cast<int>(matrix.size(1)); }
};

// to^T [n, m] = b^T a^T, column by column.
void multiply(const Operand& a, const Operand& b, const at::Tensor& to, bool add) {
  const int64_t m = to.size(0), n = to.size(1), depth = a.matrix.size(a.transposed ? 0 : 1);
  ESPALIER_CHECK(a.matrix.size(a.transposed ? 1 : 0) == m && b.matrix.size(b.transposed ? 0 : 1) == n &&
                     b.matrix.size(b.transposed ? 1 : 0) == depth,
                 a.matrix.sizes(), " by ", b.matrix.sizes(), " to ", to.sizes());
  ESPALIER_CHECK(a.matrix.is_contiguous() && b.matrix.is_contiguous() && to.is_contiguous());
  ESPALIER_CHECK(a.matrix.scalar_type() == b.matrix.scalar_type(), a.matrix.scalar_type(), ", ",
                 b.matrix.scalar_type());
  if (m == 0 || n == 0) return;
  if (depth == 0) {
    if (!add) to.zero_();
    return;
  }
  const cublasHandle_t handle = at::cuda::getCurrentCUDABlasHandle();  // on the current stream
  check(cublasSetMathMode(
      handle, static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
  const float one = 1, before = add ? 1 : 0;
  check(cublasGemmEx(handle, b.operation(), a.operation(), static_cast<int>(n), static_cast<int>(m),
                     static_cast<int>(depth), &one, b.matrix.const_data_ptr(), data_type(b.matrix), b.width(),
                     a.matrix.const_data_ptr(), data_type(a.matrix), a.width(), &before, to.mutable_data_ptr(),
                     data_type(to), static_cast<int>(n), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

}  // namespace

void multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& to, bool add) {
  multiply(Operand{a, false}, Operand{b, false}, to, add);
}

void multiply_transposed(const at::Tensor& a, const at::Tensor& b, const at::Tensor& to, bool add) {
  multiply(Operand{a, false}, Operand{b, true}, to, add);
}

void add_transposed_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& to) {
  multiply(Operand{a, true}, Operand{b, false}, to, /*add=*/true);
}

}  // namespace espalier::cuda
