// Comparison of an op on the device under test with the same op on the CPU.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <vector>

#include "tensor/param.h"
#include "tests/cuda/device_under_test.h"

namespace espalier::cuda_test {

using Tensors = std::vector<at::Tensor>;
using tensor::GradQueue;
using tensor::Param;

inline at::Tensor random(at::IntArrayRef shape, at::ScalarType type, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randn(shape, generator, at::kFloat).to(type);
}

inline at::Tensor leaf(const at::Tensor& values, at::Device device) {
  return values.to(device).detach().requires_grad_();
}

// With a gradient that already holds something.
struct TestParam : Param {
  TestParam(const at::Tensor& values, at::Device device) {
    value = values.to(device);
    grad = at::full(values.sizes(), 0.25, at::TensorOptions().dtype(at::kFloat).device(device));
  }
};

// What `run` gives on the device, against what it gives on the CPU. An element may be off by `units` roundings of its
// type, and by as many of fp32 sums as large as the largest element.
inline void expect_agreement(const std::string& what, at::ScalarType type,
                             const std::function<Tensors(at::Device)>& run, double units = 4) {
  const Tensors expected = run(at::kCPU);
  Tensors actual;
  {
    const UseDevice use;
    actual = run(device_under_test());
  }
  ASSERT_EQ(actual.size(), expected.size());
  const double rounding = type == at::kBFloat16 ? 0x1p-8 : type == at::kHalf ? 0x1p-11 : 0x1p-24;
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(actual[i].sizes(), expected[i].sizes()) << what << " result " << i;
    ASSERT_EQ(actual[i].device(), device_under_test()) << what << " result " << i;
    const at::Tensor found = actual[i].detach().cpu().to(at::kDouble).flatten();
    const at::Tensor wanted = expected[i].detach().to(at::kDouble).flatten();
    const double largest = wanted.abs().max().item<double>();
    const at::Tensor excess = (found - wanted).abs() - units * rounding * (wanted.abs() + largest / 4) - 1e-6;
    const int64_t worst = excess.argmax().item<int64_t>();
    EXPECT_LE(excess[worst].item<double>(), 0)
        << what << " " << c10::toString(type) << " result " << i << " " << expected[i].sizes() << ": element " << worst
        << " is " << found[worst].item<double>() << ", on the CPU " << wanted[worst].item<double>();
    EXPECT_TRUE(found.isfinite().all().item<bool>()) << what << " result " << i;
  }
}

inline constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16};
inline constexpr int64_t kSizes[] = {1, 7, 33};

}  // namespace espalier::cuda_test
