// Rounding to fp8 and the layers that do it, on the device under test.
#include <cstring>

#include "kernels/device_ops.h"
#include "kernels/fp8.h"
#include "kernels/fp8_reference_test.h"
#include "kernels/linear.h"
#include "tests/cuda/agreement.h"

namespace espalier::cuda_test {
namespace fp8_test {

using kernels::DeviceOps;
using spec::Fp8;
using spec::Fp8Format;
using Sides = DeviceOps::Fp8Sides;

struct Shape {
  int64_t rows, columns;
};
// Within a tile and several, whole ones and not, with accesses of 16 bytes and without; more elements than one block
// looks at.
constexpr Shape kShapes[] = {{1, 1},   {1, 16},  {7, 33},   {16, 16},   {33, 7},    {64, 64},
                             {80, 96}, {65, 64}, {64, 130}, {1100, 24}, {512, 144}, {129, 257}};

std::string name_of(const Shape& shape, Fp8Format format) {
  return std::to_string(shape.rows) + " x " + std::to_string(shape.columns) +
         (format == Fp8Format::kE4M3 ? " e4m3" : " e5m2");
}

at::Tensor bytes(const at::Tensor& codes) { return codes.cpu().view(at::kByte); }

// Magnitudes over many octaves, so that the format's denormal numbers and zeros are among them.
at::Tensor spread(const Shape& shape, uint64_t seed) {
  return (random({shape.rows, shape.columns}, at::kFloat, seed) *
          at::exp(4 * random({shape.rows, shape.columns}, at::kFloat, seed + 1)))
      .to(at::kBFloat16);
}

at::TensorOptions x_options() { return at::TensorOptions().dtype(at::kBFloat16).device(device_under_test()); }

TEST(DeviceFp8, CodesAreAtensInBothOrders) {
  const UseDevice use;
  for (const Shape& shape : kShapes)
    for (const Fp8Format format : {Fp8Format::kE4M3, Fp8Format::kE5M2}) {
      const at::Tensor x = spread(shape, 1), there = x.to(device_under_test());
      const DeviceOps& device = *kernels::device_ops(there);
      const at::Tensor wanted = bytes(kernels::fp8_reference::codes(x, format));
      const double scale = std::ldexp(1.0, -kernels::fp8_reference::scale_of(x, format));
      for (const Sides sides : {Sides::kPlain, Sides::kTransposed, Sides::kBoth}) {
        const DeviceOps::Fp8Matrix found = device.to_fp8(there, format, sides);
        EXPECT_EQ(found.scale.cpu().item<float>(), scale) << name_of(shape, format);
        ASSERT_EQ(found.plain.defined(), sides != Sides::kTransposed);
        ASSERT_EQ(found.transposed.defined(), sides != Sides::kPlain);
        if (found.plain.defined()) {
          EXPECT_EQ(found.plain.scalar_type(), kernels::fp8_reference::type_of(format));
          EXPECT_TRUE(at::equal(bytes(found.plain), wanted)) << name_of(shape, format);
        }
        if (found.transposed.defined()) {
          EXPECT_TRUE(at::equal(bytes(found.transposed), wanted.t())) << name_of(shape, format) << " transposed";
        }
      }
    }
}

TEST(DeviceFp8, ViewsThatAreNotAlignedGiveTheSameCodes) {
  const UseDevice use;
  const at::Tensor x = spread({64, 48}, 1);
  const at::Tensor memory = at::zeros({64 * 48 + 3}, x.options().device(device_under_test()));
  const at::Tensor there = memory.narrow(0, 3, 64 * 48).view({64, 48});
  there.copy_(x);
  const DeviceOps::Fp8Matrix found = kernels::device_ops(there)->to_fp8(there, Fp8Format::kE4M3, Sides::kBoth);
  const at::Tensor wanted = bytes(kernels::fp8_reference::codes(x, Fp8Format::kE4M3));
  EXPECT_TRUE(at::equal(bytes(found.plain), wanted));
  EXPECT_TRUE(at::equal(bytes(found.transposed), wanted.t()));
}

TEST(DeviceFp8, TheLargestMagnitudeIsFoundInAnyPlace) {
  const UseDevice use;
  for (const int64_t place : {0, 1, 8191, 16383, 16384, 70000, 99999}) {
    const at::Tensor x = at::full({100, 1000}, 0.25, at::kBFloat16);
    x.view({-1})[place] = -900;
    const at::Tensor there = x.to(device_under_test());
    const DeviceOps::Fp8Matrix found = kernels::device_ops(there)->to_fp8(there, Fp8Format::kE4M3, Sides::kPlain);
    EXPECT_EQ(found.scale.cpu().item<float>(), 4) << place;  // 900 > 448 * 2
  }
}

TEST(DeviceFp8, WhatIsNotFiniteBecomesNanAndZerosStay) {
  const UseDevice use;
  for (const Fp8Format format : {Fp8Format::kE4M3, Fp8Format::kE5M2}) {
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      const at::Tensor x = spread({33, 32}, 1);
      x[20][5] = bad;
      const at::Tensor there = x.to(device_under_test());
      const DeviceOps::Fp8Matrix found = kernels::device_ops(there)->to_fp8(there, format, Sides::kBoth);
      for (const at::Tensor& codes : {found.plain, found.transposed.t()}) {
        const at::Tensor is_nan = codes.cpu().to(at::kFloat).isnan();
        EXPECT_TRUE(is_nan[20][5].item<bool>()) << bad;
        EXPECT_EQ(is_nan.sum().item<int64_t>(), 1) << bad;
      }
    }
    const at::Tensor zeros = at::zeros({16, 32}, x_options());
    const DeviceOps::Fp8Matrix found = kernels::device_ops(zeros)->to_fp8(zeros, format, Sides::kBoth);
    EXPECT_EQ(bytes(found.plain).max().item<int64_t>(), 0);
    EXPECT_EQ(bytes(found.transposed).max().item<int64_t>(), 0);
  }
}

TEST(DeviceFp8, EmptyMatricesHaveNoCodes) {
  const UseDevice use;
  const at::Tensor x = at::empty({0, 32}, x_options());
  const DeviceOps::Fp8Matrix found = kernels::device_ops(x)->to_fp8(x, Fp8Format::kE4M3, Sides::kBoth);
  EXPECT_EQ(found.plain.sizes(), at::IntArrayRef({0, 32}));
  EXPECT_EQ(found.transposed.sizes(), at::IntArrayRef({32, 0}));
}

// Sizes that tensor cores take, and others.
TEST(DeviceFp8, LinearLayersAgree) {
  for (const Fp8 fp8 : {Fp8::kE4M3, Fp8::kHybrid})
    for (const int64_t tokens : {1, 7, 33, 48})
      for (const Shape& weights : {Shape{40, 24}, Shape{48, 32}})
        expect_agreement("linear of fp8", at::kBFloat16, [&](at::Device device) -> Tensors {
          GradQueue queue;
          const auto [outputs, inputs] = weights;
          TestParam weight(random({outputs, inputs}, at::kBFloat16, 1), device);
          TestParam bias(random({outputs}, at::kBFloat16, 2), device);
          Tensors results;
          for (const int micro_batch : {0, 1}) {
            const at::Tensor x = leaf(random({tokens, 1, inputs}, at::kBFloat16, 3 + micro_batch), device);
            const at::Tensor y = kernels::linear(x, weight, &bias, queue, fp8);
            torch::autograd::backward({y}, {random({tokens, 1, outputs}, at::kBFloat16, 5 + micro_batch).to(device)});
            results.push_back(y);
            results.push_back(x.grad());
          }
          results.push_back(weight.grad);
          results.push_back(bias.grad);
          return results;
        });
}

TEST(DeviceFp8, AStaleGradientIsOverwritten) {
  const auto run = [](at::Device device) -> Tensors {
    GradQueue queue;
    TestParam weight(random({48, 32}, at::kBFloat16, 1), device);
    weight.grad.fill_(NAN);
    weight.grad_is_stale = true;
    const at::Tensor x = leaf(random({16, 1, 32}, at::kBFloat16, 3), device);
    const at::Tensor y = kernels::linear(x, weight, nullptr, queue, Fp8::kHybrid);
    torch::autograd::backward({y}, {random({16, 1, 48}, at::kBFloat16, 4).to(device)});
    return {weight.grad};
  };
  expect_agreement("a stale gradient", at::kBFloat16, run);
}

}  // namespace fp8_test
}  // namespace espalier::cuda_test
