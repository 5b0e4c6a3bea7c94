// For the tests of kernels: comparison with a reference in double under the bound that rounding allows, no more.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/cpu_isa.h"
#include "tensor/param.h"

namespace espalier::kernels::reference {

// Every instruction set that this machine has.
inline std::vector<CpuIsa> instruction_sets() {
  const std::span<const CpuIsa> isas = cpu_isas_of_machine();
  return {isas.begin(), isas.end()};
}

inline bool has(CpuIsa isa) {
  const std::span<const CpuIsa> isas = cpu_isas_of_machine();
  return std::find(isas.begin(), isas.end(), isa) != isas.end();
}

// Of ops between layers: the compute type, and the type of the residual stream.
struct StreamTypes {
  at::ScalarType compute, stream;
};
inline constexpr StreamTypes kStreamTypes[] = {{at::kFloat, at::kFloat},
                                               {at::kBFloat16, at::kBFloat16},
                                               {at::kHalf, at::kHalf},
                                               {at::kBFloat16, at::kFloat},
                                               {at::kHalf, at::kFloat}};

// Half a unit in the last place, relative.
inline double rounding(at::ScalarType type) {
  return type == at::kBFloat16 ? 0x1p-8 : type == at::kHalf ? 0x1p-11 : 0x1p-24;
}

// Half the distance between denormal numbers: what rounding may add however small the value is.
inline double half_denormal(at::ScalarType type) {
  return type == at::kBFloat16 ? 0x1p-134 : type == at::kHalf ? 0x1p-25 : 0x1p-150;
}

// Bound of a value that is computed within `error` and rounded once to `type`.
inline at::Tensor rounded(const at::Tensor& value, const at::Tensor& error, at::ScalarType type) {
  return value.abs() * rounding(type) * 1.01 + error + half_denormal(type);
}

// Values of a fixed seed in `type`, scaled so that products of a few hundred stay near one.
inline at::Tensor random(at::IntArrayRef shape, at::ScalarType type, int64_t seed, double scale = 1) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  return (at::randn(shape, generator, at::kDouble) * scale).to(type);
}

// |actual - expected| <= bound for every element; prints the worst one.
inline void expect_within(const at::Tensor& actual, const at::Tensor& expected, const at::Tensor& bound,
                          const std::string& what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  if (actual.numel() == 0) return;
  const at::Tensor wide = actual.detach().to(at::kDouble).reshape({-1});
  const at::Tensor want = expected.detach().to(at::kDouble).reshape({-1});
  const at::Tensor excess = at::abs(wide - want) - bound.expand(expected.sizes()).reshape({-1});
  const int64_t worst = excess.argmax().item<int64_t>();
  EXPECT_LE(excess[worst].item<double>(), 0.0)
      << what << " " << actual.sizes() << ": element " << worst << " is " << wide[worst].item<double>() << ", expected "
      << want[worst].item<double>() << ", allowed "
      << bound.expand(expected.sizes()).reshape({-1})[worst].item<double>();
  EXPECT_TRUE(at::isfinite(wide).all().item<bool>()) << what;
}

// Bound of a product a b of `depth` terms summed in fp32 and rounded once to `type`.
inline at::Tensor product_bound(const at::Tensor& product, const at::Tensor& absolute_product, int64_t depth,
                                at::ScalarType type) {
  return at::abs(product) * rounding(type) * 1.01 + absolute_product * (static_cast<double>(depth + 2) * 0x1p-24) +
         1e-30;
}

// A parameter for one test, with a gradient that already holds something.
struct TestParam {
  // `stale`: what the gradient holds is to be overwritten.
  explicit TestParam(const at::Tensor& value, bool stale = false) : begins_at(stale ? 0 : 0.25) {
    param.value = value;
    param.grad = at::full(value.sizes(), stale ? std::numeric_limits<double>::quiet_NaN() : begins_at, at::kFloat);
    param.grad_is_stale = stale;
  }
  at::Tensor added() const { return param.grad.to(at::kDouble) - begins_at; }
  tensor::Param param;
  double begins_at;
};

}  // namespace espalier::kernels::reference
