#include "kernels/wide_product.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "kernels/reference_test.h"

namespace espalier::kernels {
namespace wide_product_test {

using reference::expect_within;
using reference::instruction_sets;
using reference::product_bound;
using reference::random;

struct Size {
  int64_t rows, depth, columns;
};
// Parts of panels; whole ones; one and two blocks of the depth and more; enough for several threads, which share the
// rows or, where there are few, the columns.
constexpr Size kSizes[] = {{1, 1, 1},     {1, 7, 33},    {7, 33, 1},    {33, 129, 7},    {32, 384, 64},
                           {65, 385, 31}, {500, 33, 96}, {64, 768, 32}, {250, 500, 130}, {20, 1000, 700},
                           {36, 400, 48}, {96, 33, 96},  {700, 500, 40}};
constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kHalf};

at::Tensor wide(const at::Tensor& x) { return x.to(at::kDouble); }

// [rows, columns] whose memory is row-major or, `turned`, that of the transpose.
at::Tensor operand(int64_t rows, int64_t columns, at::ScalarType type, bool turned, int64_t seed) {
  return turned ? random({columns, rows}, type, seed).t() : random({rows, columns}, type, seed);
}

// The plain loop, with the largest error that fp32 sums in any order can have.
struct Expected {
  at::Tensor product, absolute;
};
Expected loop(const at::Tensor& a, const at::Tensor& b, const at::Tensor& start) {
  const at::Tensor left = wide(a).contiguous(), right = wide(b).contiguous(), first = wide(start).contiguous();
  const Expected result{first.clone(), first.abs()};
  const int64_t rows = a.size(0), depth = a.size(1), columns = b.size(1);
  const auto* x = left.const_data_ptr<double>();
  const auto* y = right.const_data_ptr<double>();
  auto* sum = result.product.mutable_data_ptr<double>();
  auto* absolute = result.absolute.mutable_data_ptr<double>();
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t j = 0; j < columns; ++j) {
        sum[i * columns + j] += x[i * depth + k] * y[k * columns + j];
        absolute[i * columns + j] += std::abs(x[i * depth + k] * y[k * columns + j]);
      }
  return result;
}

void expect_product(const at::Tensor& c, const Expected& expected, int64_t depth, const std::string& what) {
  expect_within(c, expected.product, product_bound(expected.product, expected.absolute, depth + 1, at::kFloat), what);
}

class PanelProduct : public testing::TestWithParam<Size> {};

TEST_P(PanelProduct, EqualsThePlainLoopInEveryTypeAndMemoryOrder) {
  const auto [rows, depth, columns] = GetParam();
  for (const at::ScalarType type : kTypes)
    for (const bool turned_a : {false, true})
      for (const bool turned_b : {false, true}) {
        const at::Tensor a = operand(rows, depth, type, turned_a, 1), b = operand(depth, columns, type, turned_b, 2);
        const at::Tensor bias = random({columns}, type, 3), before = random({rows, columns}, at::kFloat, 4);
        const Expected product = loop(a, b, at::zeros({rows, columns})),
                       with_bias = loop(a, b, bias.expand({rows, columns})), added = loop(a, b, before);
        for (const CpuIsa isa : instruction_sets()) {
          const ForceCpuIsa force(isa);
          const std::string what =
              concat(cpu_isa_name(isa), " ", c10::toString(type), turned_a ? " A^T" : " A", turned_b ? " B^T" : " B");
          const at::Tensor c = at::full({rows, columns}, NAN, at::kFloat);
          panel_product(a, b, {}, c);
          expect_product(c, product, depth, what);
          panel_product(a, b, bias, c.fill_(NAN));
          expect_product(c, with_bias, depth, what + " + bias");
          add_panel_product(a, b, c.copy_(before));
          expect_product(c, added, depth, what + " added");
        }
      }
}

TEST_P(PanelProduct, HasTheSameBitsForAnyInstructionSetAndNumberOfThreads) {
  const auto [rows, depth, columns] = GetParam();
  const at::Tensor a = random({rows, depth}, at::kFloat, 1), b = random({columns, depth}, at::kFloat, 2).t();
  const at::Tensor before = random({rows, columns}, at::kFloat, 3);
  const int threads = at::get_num_threads();
  std::vector<at::Tensor> results;
  for (const CpuIsa isa : instruction_sets())
    for (const int num_threads : {1, 2, 3}) {
      const ForceCpuIsa force(isa);
      at::set_num_threads(num_threads);
      const at::Tensor c = at::empty({rows, columns}, at::kFloat), sum = before.clone();
      panel_product(a, b, {}, c);
      add_panel_product(a, b, sum);
      results.push_back(at::cat({c, sum}));
    }
  at::set_num_threads(threads);
  for (const at::Tensor& result : results)
    EXPECT_EQ(std::memcmp(result.const_data_ptr(), results[0].const_data_ptr(), result.nbytes()), 0);
}

TEST_P(PanelProduct, GivesARowTheSameBitsAloneAndAmongOthers) {
  const auto [rows, depth, columns] = GetParam();
  const at::Tensor a = random({rows, depth}, at::kFloat, 1), b = random({depth, columns}, at::kFloat, 2);
  const at::Tensor c = at::empty({rows, columns}, at::kFloat), last = at::empty({1, columns}, at::kFloat);
  panel_product(a, b, {}, c);
  panel_product(a.narrow(0, rows - 1, 1), b, {}, last);
  EXPECT_TRUE(at::equal(c.narrow(0, rows - 1, 1), last));
}

INSTANTIATE_TEST_SUITE_P(Sizes, PanelProduct, testing::ValuesIn(kSizes));

// More of B than is packed at once: the loss of a large vocabulary by itself, whose passes over the depth add up.
TEST(PanelProductPasses, AddUp) {
  const int64_t rows = 3, depth = 800, columns = 11'000;
  const at::Tensor a = random({rows, depth}, at::kFloat, 1), b = random({depth, columns}, at::kFloat, 2);
  const at::Tensor c = at::empty({rows, columns}, at::kFloat);
  panel_product(a, b, {}, c);
  expect_product(c, loop(a, b, at::zeros({rows, columns})), depth, "two passes");
}

TEST(PanelProductOfNothing, IsTheBiasOrWhatWasThere) {
  const at::Tensor a = at::empty({33, 0}, at::kFloat), b = at::empty({0, 40}, at::kFloat);
  const at::Tensor bias = random({40}, at::kFloat, 1), before = random({33, 40}, at::kFloat, 2);
  const at::Tensor c = at::full({33, 40}, NAN, at::kFloat);
  panel_product(a, b, {}, c);
  EXPECT_TRUE(at::equal(c, at::zeros_like(c)));
  panel_product(a, b, bias, c);
  EXPECT_TRUE(at::equal(c, bias.expand({33, 40})));
  add_panel_product(a, b, c.copy_(before));
  EXPECT_TRUE(at::equal(c, before));
  panel_product(at::empty({0, 7}), at::empty({7, 40}), bias, at::empty({0, 40}));
  panel_product(at::empty({33, 7}), at::empty({7, 0}), {}, at::empty({33, 0}));
}

TEST(PanelProductPart, IsWrittenIntoRowsThatAreApartAndNowhereElse) {
  const at::Tensor a = random({35, 50}, at::kFloat, 1), b = random({50, 37}, at::kFloat, 2);
  const at::Tensor whole = at::full({35, 64}, 7.0, at::kFloat), part = whole.narrow(1, 11, 37);
  panel_product(a, b, {}, part);
  expect_product(part, loop(a, b, at::zeros({35, 37})), 50, "part");
  EXPECT_TRUE(whole.narrow(1, 0, 11).eq(7).all().item<bool>());
  EXPECT_TRUE(whole.narrow(1, 48, 16).eq(7).all().item<bool>());
}

TEST(PanelProductOperands, MustHaveRowsOrColumnsWithoutGaps) {
  const at::Tensor every_second = at::zeros({8, 16}).slice(1, 0, 16, 2);
  EXPECT_THROW(panel_product(every_second, at::zeros({8, 3}), {}, at::empty({8, 3})), InternalError);
  EXPECT_THROW(panel_product(at::zeros({8, 4}), at::zeros({5, 3}), {}, at::empty({8, 3})), InternalError);
}

}  // namespace wide_product_test
}  // namespace espalier::kernels
