// What is asked of cuBLAS and cublasLt, whose place plain loops take here (cublas_on_host.h).
#include "kernels/cuda/products.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/cuda/cublas_on_host.h"

namespace espalier::cuda_test {
namespace products_test {

// Small whole numbers: every sum is exact in every type.
at::Tensor numbers(int64_t rows, int64_t columns, at::ScalarType type, int64_t seed) {
  return ((at::arange(rows * columns, at::kLong) * 7 + seed) % 5 - 2).view({rows, columns}).to(type);
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = a.to(at::kFloat).contiguous(), right = b.to(at::kFloat).contiguous();
  at::Tensor sums = at::zeros({a.size(0), b.size(1)});
  const auto x = left.accessor<float, 2>(), y = right.accessor<float, 2>();
  auto sum = sums.accessor<float, 2>();
  for (int64_t row = 0; row < a.size(0); ++row)
    for (int64_t column = 0; column < b.size(1); ++column)
      for (int64_t at = 0; at < a.size(1); ++at) sum[row][column] += x[row][at] * y[at][column];
  return sums;
}

void expect_equal(const at::Tensor& got, const at::Tensor& wanted, const std::string& what) {
  EXPECT_TRUE(at::equal(got.to(at::kFloat), wanted)) << what << "\n" << got << "\n" << wanted;
}

class Products : public ::testing::TestWithParam<bool> {
 protected:
  Products() {
    cublas_on_host() = {};
    cublas_on_host().light_knows_nothing = GetParam();
  }
};

TEST_P(Products, AreThoseOfPlainLoopsInEveryType) {
  // An algorithm is remembered for the process: other shapes than those of the fallback.
  const int64_t m = GetParam() ? 6 : 5, k = 3, n = 7;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const std::string what = toString(type);
    const at::Tensor a = numbers(m, k, type, 1), b = numbers(k, n, type, 2), bias = numbers(1, n, type, 3)[0];
    const at::Tensor b_transposed = b.t().contiguous(), a_transposed = a.t().contiguous();
    const at::Tensor wanted = product(a, b), before = numbers(m, n, at::kFloat, 4);

    const at::Tensor y = at::full({m, n}, 9, type);
    cuda::multiply(a, b, y);
    expect_equal(y, wanted, what + ", a b");
    cuda::multiply_transposed(a, b_transposed, y);
    expect_equal(y, wanted, what + ", a b^T");
    cuda::multiply_transposed_with_bias(a, b_transposed, bias, y);
    expect_equal(y, wanted + bias.to(at::kFloat), what + ", a b^T + bias");
    cuda::multiply_transposed(a, b_transposed, y, /*add=*/true);
    expect_equal(y, 2 * wanted + bias.to(at::kFloat), what + ", += a b^T");
    const at::Tensor sums = before.clone();
    cuda::add_transposed_product(a_transposed, b, sums);
    expect_equal(sums, wanted + before, what + ", fp32 += a^T b");
  }
  EXPECT_EQ(cublas_on_host().light_products, GetParam() ? 0 : 15);
  EXPECT_EQ(cublas_on_host().plain_products, GetParam() ? 15 : 0);
}

INSTANTIATE_TEST_SUITE_P(LightOrPlain, Products, ::testing::Bool());

TEST(LightProducts, AskOncePerShapeAndAlignment) {
  cublas_on_host() = {};
  const at::Tensor a = numbers(11, 4, at::kBFloat16, 1), b = numbers(4, 13, at::kBFloat16, 2);
  const at::Tensor y = at::empty({11, 13}, at::kBFloat16);
  for (int time = 0; time < 3; ++time) cuda::multiply(a, b, y);
  EXPECT_EQ(cublas_on_host().questions, 1);
  // From its second row on: 26 bytes further, which no algorithm for 64 bytes may touch.
  cuda::multiply(a.narrow(0, 1, 10), b, y.narrow(0, 1, 10));
  cuda::multiply(a.narrow(0, 0, 10), b, y.narrow(0, 0, 10));
  EXPECT_EQ(cublas_on_host().questions, 3);
  expect_equal(y.narrow(0, 1, 10), product(a.narrow(0, 1, 10), b), "rows from 1 on");
}

TEST(LightProducts, WithoutATermAreWhatWasThere) {
  const at::Tensor a = at::empty({3, 0}), b = at::empty({0, 4}), bias = at::arange(4, at::kFloat);
  const at::Tensor y = at::full({3, 4}, 5, at::kFloat);
  cuda::add_transposed_product(at::empty({0, 3}), b, y);
  expect_equal(y, at::full({3, 4}, 5, at::kFloat), "added to");
  cuda::multiply_transposed_with_bias(a, at::empty({4, 0}), bias, y);
  expect_equal(y, bias.expand({3, 4}), "bias alone");
  cuda::multiply(a, b, y);
  expect_equal(y, at::zeros({3, 4}), "nothing");
}

TEST(LightProducts, AFailureIsNamed) {
  cublas_on_host() = {};
  cublas_on_host().light_fails = true;
  try {
    cuda::multiply(at::ones({2, 2}), at::ones({2, 2}), at::empty({2, 2}));
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("cublasLtMatmul: cublasLt said no"), std::string::npos) << error.what();
  }
}

}  // namespace products_test
}  // namespace espalier::cuda_test
