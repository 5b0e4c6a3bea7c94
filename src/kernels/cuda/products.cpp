#include "kernels/cuda/products.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>

#include "base/error.h"
#include "kernels/cuda/light_product.h"

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

// What cublasLt has no algorithm for. A bias has been put into the result.
void multiply_plainly(const LightProduct& product) {
  const cublasHandle_t handle = at::cuda::getCurrentCUDABlasHandle();  // on the current stream
  check(cublasSetMathMode(
      handle, static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
  const int64_t depth = product.a.operation == CUBLAS_OP_N ? product.a.columns : product.a.rows;
  const float one = 1, before = product.add ? 1 : 0;
  check(cublasGemmEx(handle, product.a.operation, product.b.operation, static_cast<int>(product.rows),
                     static_cast<int>(product.columns), static_cast<int>(depth), &one, product.a.data, product.a.type,
                     static_cast<int>(product.a.rows), product.b.data, product.b.type, static_cast<int>(product.b.rows),
                     &before, product.result, product.result_type, static_cast<int>(product.rows), CUBLAS_COMPUTE_32F,
                     CUBLAS_GEMM_DEFAULT));
}

struct Operand {
  const at::Tensor& matrix;
  bool transposed;
  int64_t rows() const { return matrix.size(transposed ? 1 : 0); }
  int64_t columns() const { return matrix.size(transposed ? 0 : 1); }
  // A row-major matrix is its transpose, column by column.
  LightProduct::Operand of_transpose() const {
    return {matrix.const_data_ptr(), transposed ? CUBLAS_OP_T : CUBLAS_OP_N, matrix.size(1), matrix.size(0),
            data_type(matrix)};
  }
};

// What the result holds before the product: nothing, what is added to, or a bias for each row.
struct Before {
  bool add = false;
  at::Tensor bias = {};
};

void put_before(const at::Tensor& to, const Before& before) {
  if (before.bias.defined())
    to.copy_(before.bias.unsqueeze(0).expand_as(to));
  else if (!before.add)
    to.zero_();
}

// to^T [n, m] = b^T a^T, column by column.
void multiply(const Operand& a, const Operand& b, const at::Tensor& to, const Before& before) {
  ESPALIER_CHECK(a.rows() == to.size(0) && b.columns() == to.size(1) && b.rows() == a.columns(), a.matrix.sizes(),
                 " by ", b.matrix.sizes(), " to ", to.sizes());
  ESPALIER_CHECK(a.matrix.is_contiguous() && b.matrix.is_contiguous() && to.is_contiguous());
  ESPALIER_CHECK(a.matrix.scalar_type() == b.matrix.scalar_type(), a.matrix.scalar_type(), ", ",
                 b.matrix.scalar_type());
  const at::Tensor& bias = before.bias;
  ESPALIER_CHECK(!bias.defined() || (bias.is_contiguous() && bias.dim() == 1 && bias.size(0) == to.size(1) &&
                                     bias.scalar_type() == to.scalar_type()),
                 "a bias of ", bias.sizes(), " ", bias.scalar_type(), " for ", to.sizes(), " ", to.scalar_type());
  if (to.numel() == 0) return;
  if (a.columns() == 0) return put_before(to, before);
  LightProduct product{.a = b.of_transpose(),
                       .b = a.of_transpose(),
                       .result = to.mutable_data_ptr(),
                       .result_type = data_type(to),
                       .rows = to.size(1),
                       .columns = to.size(0),
                       .add = before.add,
                       .bias = bias.defined() ? bias.const_data_ptr() : nullptr};
  if (multiply_light(product)) return;
  if (bias.defined()) put_before(to, before);
  product.add = before.add || bias.defined();
  multiply_plainly(product);
}

}  // namespace

void multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& to, bool add) {
  multiply(Operand{a, false}, Operand{b, false}, to, {.add = add});
}

void multiply_transposed(const at::Tensor& a, const at::Tensor& b, const at::Tensor& to, bool add) {
  multiply(Operand{a, false}, Operand{b, true}, to, {.add = add});
}

void multiply_transposed_with_bias(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
                                   const at::Tensor& to) {
  multiply(Operand{a, false}, Operand{b, true}, to, {.bias = bias});
}

void add_transposed_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& to) {
  multiply(Operand{a, true}, Operand{b, false}, to, {.add = true});
}

}  // namespace espalier::cuda
