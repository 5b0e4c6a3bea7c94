// What is asked of cublasLt for products of fp8, in whose place plain loops in double refuse what it does not take.
#include "kernels/cuda/fp8_products.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/cuda/cublas_on_host.h"

namespace espalier::cuda_test {
namespace fp8_products_test {

// Small whole numbers, which every format holds: sums are exact.
at::Tensor numbers(int64_t rows, int64_t columns, at::ScalarType type, int64_t seed) {
  return ((at::arange(rows * columns, at::kLong) * 7 + seed) % 5 - 2).view({rows, columns}).to(at::kFloat).to(type);
}

at::Tensor scale(double value) { return at::full({1}, value, at::kFloat); }

// a b^T of the values of codes, with 0.5 and 4 as their scales.
at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble).contiguous(), y = b.to(at::kDouble).contiguous();
  at::Tensor sums = at::zeros({a.size(0), b.size(0)}, at::kDouble);
  const auto of_x = x.accessor<double, 2>(), of_y = y.accessor<double, 2>();
  auto sum = sums.accessor<double, 2>();
  for (int64_t row = 0; row < a.size(0); ++row)
    for (int64_t column = 0; column < b.size(0); ++column)
      for (int64_t at = 0; at < a.size(1); ++at) sum[row][column] += 2 * of_x[row][at] * of_y[column][at];
  return sums;
}

void expect_equal(const at::Tensor& got, const at::Tensor& wanted, const std::string& what) {
  EXPECT_TRUE(at::equal(got.to(at::kDouble), wanted)) << what << "\n" << got << "\n" << wanted;
}

struct Sizes {
  int64_t m, n, k;
};

void expect_products(const Sizes& sizes) {
  const auto [m, n, k] = sizes;
  for (const at::ScalarType type : {at::kFloat8_e4m3fn, at::kFloat8_e5m2}) {
    const std::string what =
        std::string(toString(type)) + " " + std::to_string(m) + " x " + std::to_string(n) + " of " + std::to_string(k);
    const at::Tensor a = numbers(m, k, type, 1), b = numbers(n, k, at::kFloat8_e4m3fn, 2);
    const at::Tensor half = scale(0.5), four = scale(4), wanted = product(a, b);
    const at::Tensor bias = numbers(1, n, at::kBFloat16, 3)[0], y = at::full({m, n}, 9, at::kBFloat16);
    cuda::multiply_codes({a, half}, {b, four}, {}, y, /*add=*/false);
    expect_equal(y, wanted, what);
    cuda::multiply_codes({a, half}, {b, four}, bias, y, /*add=*/false);
    expect_equal(y, wanted + bias.to(at::kDouble), what + " with a bias");
    const at::Tensor sums = numbers(m, n, at::kFloat, 4), before = sums.to(at::kDouble);
    const at::Tensor turned = at::empty({n, m}, at::kFloat);
    cuda::multiply_codes({b, four}, {a, half}, {}, turned, /*add=*/false);
    expect_equal(turned, wanted.t(), what + ", the other way round");
    cuda::multiply_codes({a, half}, {b, four}, {}, sums, /*add=*/true);
    expect_equal(sums, wanted + before, what + ", fp32 +=");
    cuda::multiply_codes({a, half}, {b, four}, {}, sums, /*add=*/false);
    expect_equal(sums, wanted, what + ", fp32 =");
  }
}

class Fp8Products : public ::testing::Test {
 protected:
  Fp8Products() { cublas_on_host() = {}; }
};

TEST_F(Fp8Products, AreThoseOfPlainLoops) {
  expect_products({16, 48, 32});
  EXPECT_EQ(cublas_on_host().light_products, 10);
  EXPECT_EQ(cublas_on_host().plain_products, 0);
}

TEST_F(Fp8Products, OfOtherSizesAreThoseOfBf16) {
  for (const Sizes& sizes : {Sizes{1, 16, 32}, {16, 33, 16}, {32, 16, 7}}) {
    expect_products(sizes);
    const at::Tensor a = numbers(sizes.m, sizes.k, at::kFloat8_e4m3fn, 1), one = scale(1);
    const at::Tensor b = numbers(sizes.n, sizes.k, at::kFloat8_e4m3fn, 2), y = at::empty({sizes.m, sizes.n});
    const char* const why = cuda::multiply_codes({a, one}, {b, one}, {}, y, /*add=*/false);
    ASSERT_NE(why, nullptr);
    EXPECT_NE(std::string(why).find("multiples of 16"), std::string::npos) << why;
  }
}

TEST_F(Fp8Products, OfAnOldGpuAreThoseOfBf16) {
  cublas_on_host().has_fp8 = false;
  expect_products({16, 48, 32});
  const at::Tensor a = numbers(16, 16, at::kFloat8_e4m3fn, 1), y = at::empty({16, 16}), one = scale(1);
  const char* const why = cuda::multiply_codes({a, one}, {a, one}, {}, y, /*add=*/false);
  ASSERT_NE(why, nullptr);
  EXPECT_NE(std::string(why).find("8.9"), std::string::npos) << why;
}

TEST_F(Fp8Products, WithoutAnAlgorithmAreThoseOfBf16) {
  cublas_on_host().light_knows_nothing = true;
  expect_products({80, 48, 32});  // of no other test: what was found for a shape is remembered
  EXPECT_EQ(cublas_on_host().light_products, 0);
}

TEST_F(Fp8Products, AViewThatIsNotAlignedIsNotGivenToTensorCores) {
  const at::Tensor memory = at::zeros({16 * 16 + 8}, at::kByte);
  const at::Tensor a = memory.narrow(0, 8, 16 * 16).view({16, 16}).view(at::kFloat8_e4m3fn);
  const at::Tensor b = numbers(16, 16, at::kFloat8_e4m3fn, 2), y = at::full({16, 16}, 5.0), one = scale(1);
  EXPECT_NE(cuda::multiply_codes({a, one}, {b, one}, {}, y, /*add=*/false), nullptr);
  expect_equal(y, at::zeros({16, 16}, at::kDouble), "of zeros");
}

TEST_F(Fp8Products, WithoutATermAreWhatWasThere) {
  const at::Tensor a = at::empty({16, 0}, at::kFloat8_e4m3fn), b = at::empty({32, 0}, at::kFloat8_e4m3fn);
  const at::Tensor one = scale(1), sums = at::full({16, 32}, 5.0);
  cuda::multiply_codes({a, one}, {b, one}, {}, sums, /*add=*/true);
  expect_equal(sums, at::full({16, 32}, 5, at::kDouble), "added to");
  cuda::multiply_codes({a, one}, {b, one}, {}, sums, /*add=*/false);
  expect_equal(sums, at::zeros({16, 32}, at::kDouble), "nothing");
}

}  // namespace fp8_products_test
}  // namespace espalier::cuda_test
