#include "tests/cuda/cublas_on_host.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <cublasLt.h>

#include <cstring>

#include "kernels/cuda/stream.h"

namespace espalier::cuda {
Stream current_stream() { return nullptr; }
at::Device current_device() { return at::kCPU; }
bool multiplies_fp8() { return cuda_test::cublas_on_host().has_fp8; }
}  // namespace espalier::cuda

namespace espalier::cuda_test {

CublasOnHost& cublas_on_host() {
  static CublasOnHost state;
  return state;
}

namespace {

struct Operation {
  int32_t transposed_a = CUBLAS_OP_N, transposed_b = CUBLAS_OP_N, bias_type = -1;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  const float *scale_a = nullptr, *scale_b = nullptr;
};
struct Layout {
  cudaDataType type;
  int64_t rows, columns, stride;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignment_a = 256, alignment_b = 256, alignment_c = 256, alignment_d = 256;
};
// What the stand-in's one algorithm was chosen for; it refuses everything else.
struct Algorithm {
  Operation operation;
  Layout a, b, result;
  Preference preference;
};

template <class To, class From>
To& as(From* opaque) {
  return *reinterpret_cast<To*>(opaque);
}

template <class Value>
cublasStatus_t take(Value& value, const void* from, size_t size) {
  if (size != sizeof value) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&value, from, size);
  return CUBLAS_STATUS_SUCCESS;
}

at::ScalarType type_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_16BF: return at::kBFloat16;
    case CUDA_R_16F: return at::kHalf;
    case CUDA_R_8F_E4M3: return at::kFloat8_e4m3fn;
    case CUDA_R_8F_E5M2: return at::kFloat8_e5m2;
    default: return at::kFloat;
  }
}

// Column by column, as a row-major tensor of its transpose turned round; operands in double.
at::Tensor matrix(const void* data, const Layout& layout) {
  return at::from_blob(const_cast<void*>(data), {layout.columns, layout.stride}, type_of(layout.type))
      .narrow(1, 0, layout.rows)
      .t();
}
at::Tensor operand(const void* data, const Layout& layout, int32_t operation) {
  const at::Tensor values = matrix(data, layout).to(at::kDouble);
  return operation == CUBLAS_OP_N ? values : values.t();
}

struct Product {
  Operation operation;
  Layout a, b, result;
};

bool is_fp8(const Layout& layout) { return layout.type == CUDA_R_8F_E4M3 || layout.type == CUDA_R_8F_E5M2; }

// Operands of one type, and scales of none.
bool fits_plain(const Product& product) {
  return product.a.type == product.b.type && product.operation.scale_a == nullptr &&
         product.operation.scale_b == nullptr;
}

// "cublasLtMatmul" and "Tensor Core Usage" of its documentation: both operands of 8 bits, not both e5m2, a result of
// bf16 or fp32, the first transposed and the second not, sizes and strides in multiples of 16 bytes. Scales are read
// from the device, where not given they are 1: here forgetting one is a mistake.
bool fits_fp8(const Product& product) {
  const Layout &a = product.a, &b = product.b, &result = product.result;
  const auto whole = [](int64_t size) { return size > 0 && size % 16 == 0; };
  return is_fp8(a) && is_fp8(b) && !(a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2) &&
         (result.type == CUDA_R_16BF || result.type == CUDA_R_32F) && product.operation.transposed_a == CUBLAS_OP_T &&
         product.operation.transposed_b == CUBLAS_OP_N && whole(a.rows) && whole(a.columns) && whole(b.rows) &&
         whole(b.columns) && whole(a.stride) && whole(b.stride) && whole(result.stride) &&
         product.operation.scale_a != nullptr && product.operation.scale_b != nullptr &&
         (product.operation.epilogue != CUBLASLT_EPILOGUE_BIAS || product.operation.bias_type == CUDA_R_16BF);
}

bool fits(const Product& product) {
  const bool plain_a = product.operation.transposed_a == CUBLAS_OP_N,
             plain_b = product.operation.transposed_b == CUBLAS_OP_N;
  return (plain_a ? product.a.rows : product.a.columns) == product.result.rows &&
         (plain_b ? product.b.columns : product.b.rows) == product.result.columns &&
         (plain_a ? product.a.columns : product.a.rows) == (plain_b ? product.b.rows : product.b.columns) &&
         product.a.stride >= product.a.rows && product.b.stride >= product.b.rows &&
         product.result.stride >= product.result.rows &&
         (is_fp8(product.a) || is_fp8(product.b) ? fits_fp8(product) : fits_plain(product));
}

void compute(const Product& product, const void* a, const void* b, void* result, float alpha, float beta) {
  const Operation& operation = product.operation;
  if (operation.scale_a != nullptr) alpha *= *operation.scale_a;
  if (operation.scale_b != nullptr) alpha *= *operation.scale_b;
  at::Tensor sums = alpha * at::mm(operand(a, product.a, product.operation.transposed_a),
                                   operand(b, product.b, product.operation.transposed_b));
  const at::Tensor to = matrix(result, product.result);
  if (beta != 0) sums = sums + beta * to.to(at::kDouble);
  if (product.operation.epilogue == CUBLASLT_EPILOGUE_BIAS)
    sums = sums +
           at::from_blob(const_cast<void*>(product.operation.bias), {product.result.rows}, type_of(product.result.type))
               .to(at::kDouble)
               .unsqueeze(1);
  to.copy_(sums.to(at::kFloat));
}

bool is_aligned(const void* data, uint32_t alignment) { return reinterpret_cast<uintptr_t>(data) % alignment == 0; }

bool is_same(const Layout& a, const Layout& b) {
  return a.type == b.type && a.rows == b.rows && a.columns == b.columns && a.stride == b.stride;
}

int handle;
}  // namespace
}  // namespace espalier::cuda_test

using namespace espalier::cuda_test;

namespace at::cuda {
cublasHandle_t getCurrentCUDABlasHandle() { return reinterpret_cast<cublasHandle_t>(&handle); }
cublasLtHandle_t getCurrentCUDABlasLtHandle() { return reinterpret_cast<cublasLtHandle_t>(&handle); }
}  // namespace at::cuda

extern "C" {

const char* cublasGetStatusString(cublasStatus_t) { return "cuBLAS said no"; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "cublasLt said no"; }
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t mode) {
  return (mode & CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION) != 0 ? CUBLAS_STATUS_SUCCESS
                                                                        : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasGemmEx(cublasHandle_t, cublasOperation_t transposed_a, cublasOperation_t transposed_b, int m,
                            int n, int k, const void* alpha, const void* a, cudaDataType type_a, int stride_a,
                            const void* b, cudaDataType type_b, int stride_b, const void* beta, void* c,
                            cudaDataType type_c, int stride_c, cublasComputeType_t compute_type, cublasGemmAlgo_t) {
  const bool plain_a = transposed_a == CUBLAS_OP_N, plain_b = transposed_b == CUBLAS_OP_N;
  const Product product{{.transposed_a = transposed_a, .transposed_b = transposed_b},
                        {type_a, plain_a ? m : k, plain_a ? k : m, stride_a},
                        {type_b, plain_b ? k : n, plain_b ? n : k, stride_b},
                        {type_c, m, n, stride_c}};
  if (!fits(product) || compute_type != CUBLAS_COMPUTE_32F) return CUBLAS_STATUS_INVALID_VALUE;
  ++cublas_on_host().plain_products;
  compute(product, a, b, c, *static_cast<const float*>(alpha), *static_cast<const float*>(beta));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute_type,
                                        cudaDataType_t scale_type) {
  if (compute_type != CUBLAS_COMPUTE_32F || scale_type != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(new Operation);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t made) {
  delete &as<Operation>(made);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t made, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t size) {
  Operation& operation = as<Operation>(made);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return take(operation.transposed_a, value, size);
    case CUBLASLT_MATMUL_DESC_TRANSB: return take(operation.transposed_b, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return take(operation.epilogue, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return take(operation.bias, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return take(operation.bias_type, value, size);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return take(operation.scale_a, value, size);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return take(operation.scale_b, value, size);
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t stride) {
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), stride});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t made) {
  delete &as<Layout>(made);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  *made = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t made) {
  delete &as<Preference>(made);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t made,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t size) {
  Preference& preference = as<Preference>(made);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return take(preference.workspace, value, size);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return take(preference.schemes, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return take(preference.alignment_a, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return take(preference.alignment_b, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return take(preference.alignment_c, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return take(preference.alignment_d, value, size);
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* count) {
  CublasOnHost& state = cublas_on_host();
  ++state.questions;
  const Product product{as<Operation>(operation), as<Layout>(a), as<Layout>(b), as<Layout>(d)};
  const Operation& asked = product.operation;
  const bool has_bias = asked.epilogue == CUBLASLT_EPILOGUE_BIAS;
  if (wanted != 1 || !fits(product) || !is_same(as<Layout>(c), as<Layout>(d)) ||
      (has_bias && (asked.bias == nullptr || asked.bias_type != product.result.type)) ||
      as<Preference>(preference).schemes != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
    return CUBLAS_STATUS_INVALID_VALUE;
  *count = 0;
  if (state.light_knows_nothing) return CUBLAS_STATUS_NOT_SUPPORTED;
  results[0] = {};
  auto* const chosen = new Algorithm{asked, product.a, product.b, product.result, as<Preference>(preference)};
  std::memcpy(results[0].algo.data, &chosen, sizeof chosen);
  results[0].workspaceSize = static_cast<size_t>(as<Preference>(preference).workspace);
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t layout_a, const void* b, cublasLtMatrixLayout_t layout_b,
                              const void* beta, const void* c, cublasLtMatrixLayout_t layout_c, void* d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_size, cudaStream_t) {
  CublasOnHost& state = cublas_on_host();
  if (state.light_fails) return CUBLAS_STATUS_EXECUTION_FAILED;
  Algorithm* chosen = nullptr;
  std::memcpy(&chosen, algorithm->data, sizeof chosen);
  const Product product{as<Operation>(operation), as<Layout>(layout_a), as<Layout>(layout_b), as<Layout>(layout_d)};
  const Preference& promised = chosen->preference;
  if (!is_same(product.a, chosen->a) || !is_same(product.b, chosen->b) || !is_same(product.result, chosen->result) ||
      !is_same(as<Layout>(layout_c), product.result) || c != d || workspace == nullptr ||
      workspace_size < promised.workspace || product.operation.epilogue != chosen->operation.epilogue ||
      product.operation.transposed_a != chosen->operation.transposed_a ||
      product.operation.transposed_b != chosen->operation.transposed_b || !is_aligned(a, promised.alignment_a) ||
      !is_aligned(b, promised.alignment_b) || !is_aligned(c, promised.alignment_c) ||
      !is_aligned(d, promised.alignment_d) || !fits(product) ||
      (is_fp8(product.a) && !(is_aligned(a, 16) && is_aligned(b, 16) && is_aligned(d, 16))))
    return CUBLAS_STATUS_INVALID_VALUE;
  ++state.light_products;
  compute(product, a, b, d, *static_cast<const float*>(alpha), *static_cast<const float*>(beta));
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
