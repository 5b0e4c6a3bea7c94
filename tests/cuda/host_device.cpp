#include <ATen/ATen.h>

#include "kernels/cuda/fp8_products.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/sdpa.h"
#include "kernels/cuda/stream.h"
#include "kernels/device_ops.h"
#include "tests/cuda/device_under_test.h"

namespace espalier::cuda_test {

at::Device device_under_test() { return {at::kPrivateUse1, 0}; }  // host_backend.cpp

const char* why_no_cudnn_attention() { return cuda::why_no_sdpa(); }

UseDevice::UseDevice() { kernels::set_device_ops(at::kPrivateUse1, &cuda::ops()); }
UseDevice::~UseDevice() { kernels::set_device_ops(at::kPrivateUse1, nullptr); }

}  // namespace espalier::cuda_test

// What the plugin takes from CUDA and cuBLAS.
namespace espalier::cuda {

Stream current_stream() { return nullptr; }
at::Device current_device() { return cuda_test::device_under_test(); }
int64_t device_bytes() { return int64_t{24} << 30; }
at::Tensor pinned_bytes(int64_t count) { return at::empty({count}, at::kByte); }

namespace {
void put(const at::Tensor& product, const at::Tensor& to, bool add) {
  to.copy_(add ? product + to.to(at::kFloat) : product);
}
}  // namespace

void multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& to, bool add) {
  put(at::mm(a.to(at::kFloat), b.to(at::kFloat)), to, add);
}
void multiply_transposed(const at::Tensor& a, const at::Tensor& b, const at::Tensor& to, bool add) {
  put(at::mm(a.to(at::kFloat), b.to(at::kFloat).t()), to, add);
}
void multiply_transposed_with_bias(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
                                   const at::Tensor& to) {
  put(at::mm(a.to(at::kFloat), b.to(at::kFloat).t()) + bias.to(at::kFloat), to, false);
}
void add_transposed_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& to) {
  put(at::mm(a.to(at::kFloat).t(), b.to(at::kFloat)), to, true);
}

const char* multiply_codes(const Fp8Factor& a, const Fp8Factor& b, const at::Tensor& bias, const at::Tensor& to,
                           bool add) {
  const auto values = [](const Fp8Factor& factor) { return factor.codes.to(at::kFloat) * factor.scale; };
  const at::Tensor product = at::mm(values(a), values(b).t());
  put(bias.defined() ? product + bias.to(at::kFloat) : product, to, add);
  return nullptr;
}

}  // namespace espalier::cuda
