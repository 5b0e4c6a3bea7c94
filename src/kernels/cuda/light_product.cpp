#include "kernels/cuda/light_product.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>

#include <algorithm>
#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "kernels/cuda/stream.h"

namespace espalier::cuda {
namespace {

// Algorithms that divide the sum put its parts there; what NVIDIA recommends for Hopper.
constexpr int64_t kWorkspaceBytes = 32 << 20;
constexpr uint32_t kMostAlignment = 256;  // more than that makes no difference to cublasLt

void check_light(cublasStatus_t status, const char* call) {
  ESPALIER_CHECK(status == CUBLAS_STATUS_SUCCESS, call, ": ", cublasLtGetStatusString(status));
}

// What cublasLt calls descriptors: made, given attributes, used, destroyed.
template <class Pointer, cublasStatus_t (*destroy)(Pointer)>
struct Destroy {
  using pointer = Pointer;
  void operator()(Pointer descriptor) const { destroy(descriptor); }
};
template <class Pointer, cublasStatus_t (*destroy)(Pointer)>
using Owned = std::unique_ptr<std::remove_pointer_t<Pointer>, Destroy<Pointer, destroy>>;
using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

template <class Value>
void set(const Operation& operation, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  check_light(cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof value),
              "cublasLtMatmulDescSetAttribute");
}

template <class Value>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
  check_light(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
              "cublasLtMatmulPreferenceSetAttribute");
}

Layout make_layout(cudaDataType_t type, int64_t rows, int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_light(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns),
                                         /*ld=*/rows),
              "cublasLtMatrixLayoutCreate");
  return Layout(layout);
}

Operation make_operation(const LightProduct& product) {
  cublasLtMatmulDesc_t made = nullptr;
  check_light(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  Operation operation(made);
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, product.a.operation);
  set(operation, CUBLASLT_MATMUL_DESC_TRANSB, product.b.operation);
  if (product.a.scale != nullptr) set(operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, product.a.scale);
  if (product.b.scale != nullptr) set(operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, product.b.scale);
  if (product.bias != nullptr) {
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias);
    set(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, product.result_type);
  }
  return operation;
}

uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  return address == 0 ? kMostAlignment
                      : static_cast<uint32_t>(std::min<uintptr_t>(address & (~address + 1), kMostAlignment));
}

// All that an algorithm depends on.
struct Shape {
  int device;
  cublasOperation_t operation_a, operation_b;
  cudaDataType_t type_a, type_b, result_type;
  int64_t rows, columns, depth;
  bool add, has_bias;
  uint32_t alignment_a, alignment_b, alignment_result, alignment_bias;
  auto operator<=>(const Shape&) const = default;
};

Shape shape_of(const LightProduct& product) {
  return {.device = current_device().index(),
          .operation_a = product.a.operation,
          .operation_b = product.b.operation,
          .type_a = product.a.type,
          .type_b = product.b.type,
          .result_type = product.result_type,
          .rows = product.rows,
          .columns = product.columns,
          .depth = product.a.operation == CUBLAS_OP_N ? product.a.columns : product.a.rows,
          .add = product.add,
          .has_bias = product.bias != nullptr,
          .alignment_a = alignment_of(product.a.data),
          .alignment_b = alignment_of(product.b.data),
          .alignment_result = alignment_of(product.result),
          .alignment_bias = alignment_of(product.bias)};
}

struct Descriptors {
  Operation operation;
  Layout a, b, result;
};

// The first of the heuristic's; nothing where it has none.
std::optional<cublasLtMatmulAlgo_t> ask_heuristic(cublasLtHandle_t handle, const Descriptors& of, const Shape& shape) {
  cublasLtMatmulPreference_t made = nullptr;
  check_light(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
  const Preference preference(made);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspaceBytes));
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape.alignment_a);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape.alignment_b);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.alignment_result);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.alignment_result);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle, of.operation.get(), of.a.get(), of.b.get(), of.result.get(),
                                     of.result.get(), preference.get(), 1, &found, &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && count == 0)) return std::nullopt;
  check_light(status, "cublasLtMatmulAlgoGetHeuristic");
  return found.state == CUBLAS_STATUS_SUCCESS ? std::optional(found.algo) : std::nullopt;
}

// What was chosen for each shape, and the memory that the chosen may need, for each stream. Never destroyed: at the end
// of the process the device may be gone first.
class Choices {
 public:
  static Choices& of_process() {
    static auto* const choices = new Choices;
    return *choices;
  }

  std::optional<cublasLtMatmulAlgo_t> algorithm(cublasLtHandle_t handle, const Descriptors& of, const Shape& shape) {
    const std::lock_guard lock(mutex_);  // backward passes run on a thread of their own
    const auto [entry, is_new] = algorithms_.try_emplace(shape);
    if (is_new) entry->second = ask_heuristic(handle, of, shape);
    return entry->second;
  }

  void* workspace(Stream stream) {
    const std::lock_guard lock(mutex_);
    at::Tensor& memory = workspaces_[{current_device().index(), stream}];
    if (!memory.defined())
      memory = at::empty({kWorkspaceBytes}, at::TensorOptions().dtype(at::kByte).device(current_device()));
    return memory.mutable_data_ptr();
  }

 private:
  std::mutex mutex_;
  std::map<Shape, std::optional<cublasLtMatmulAlgo_t>> algorithms_;
  std::map<std::pair<int, Stream>, at::Tensor> workspaces_;
};

}  // namespace

bool multiply_light(const LightProduct& product) {
  const cublasLtHandle_t handle = at::cuda::getCurrentCUDABlasLtHandle();
  const Descriptors of{make_operation(product), make_layout(product.a.type, product.a.rows, product.a.columns),
                       make_layout(product.b.type, product.b.rows, product.b.columns),
                       make_layout(product.result_type, product.rows, product.columns)};
  Choices& choices = Choices::of_process();
  const std::optional<cublasLtMatmulAlgo_t> algorithm = choices.algorithm(handle, of, shape_of(product));
  if (!algorithm) return false;
  const Stream stream = current_stream();
  const float one = 1, before = product.add ? 1 : 0;
  check_light(cublasLtMatmul(handle, of.operation.get(), &one, product.a.data, of.a.get(), product.b.data, of.b.get(),
                             &before, product.result, of.result.get(), product.result, of.result.get(), &*algorithm,
                             choices.workspace(stream), kWorkspaceBytes, stream),
              "cublasLtMatmul");
  return true;
}

}  // namespace espalier::cuda
