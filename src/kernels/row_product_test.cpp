#include "kernels/row_product.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <tuple>

#include "base/cpu_isa.h"
#include "kernels/reference_test.h"

namespace espalier::kernels {
namespace row_product_test {

class RowProduct : public testing::TestWithParam<std::tuple<at::ScalarType, CpuIsa>> {
 protected:
  at::ScalarType type() const { return std::get<0>(GetParam()); }
  CpuIsa isa() const { return std::get<1>(GetParam()); }
};

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         std::memcmp(a.contiguous().const_data_ptr(), b.contiguous().const_data_ptr(), a.nbytes()) == 0;
}

TEST_P(RowProduct, IsTheProductOfDoubles) {
  const ForceCpuIsa force(isa());
  for (const auto& [tokens, inputs, outputs] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {1, 1, 1}, {1, 7, 33}, {7, 33, 1}, {5, 65, 16}, {33, 130, 47}, {65, 7, 33}, {13, 1601, 21}})
    for (const at::ScalarType result : {type(), at::kFloat}) {
      const at::Tensor x = reference::random({tokens, inputs}, type(), 1),
                       weight = reference::random({outputs, inputs}, type(), 2),
                       bias = reference::random({outputs}, type(), 3);
      const at::Tensor a = x.to(at::kDouble), w = weight.to(at::kDouble), b = bias.to(at::kDouble);
      const at::Tensor expected = a.mm(w.t()), size = a.abs().mm(w.abs().t());
      reference::expect_within(row_product(x, weight, {}, result), expected,
                               reference::product_bound(expected, size, inputs, result), "without bias");
      reference::expect_within(row_product(x, weight, bias, result), expected + b,
                               reference::product_bound(expected + b, size + b.abs(), inputs, result), "with bias");
    }
}

// A row has the same bits alone, at every place among others, and with any number of threads: rows of numbers, and of
// zeros and denormals of both signs, beside one with an infinity and one with a NaN, which are not compared.
TEST_P(RowProduct, ARowDependsOnItselfAlone) {
  const ForceCpuIsa force(isa());
  constexpr int64_t kTokens = 75, kOutputs = 45, kDenormals = 11, kInfinite = 40, kNan = 66;
  const int threads = at::get_num_threads();
  // 1601 in several parts where rows are together.
  for (const int64_t inputs : {1, 16, 77, 1601}) {
    at::Tensor x = reference::random({kTokens, inputs}, type(), 1);
    const at::Tensor weight = reference::random({kOutputs, inputs}, type(), 2),
                     bias = reference::random({kOutputs}, type(), 3);
    x[kDenormals] = (x[kDenormals].to(at::kFloat).sign() * (type() == at::kHalf ? 1e-7 : 1e-40)).to(type());
    x[kDenormals][inputs / 2] = -0.0;
    x[kInfinite][inputs / 3] = std::numeric_limits<float>::infinity();
    x[kNan][inputs / 3] = std::numeric_limits<float>::quiet_NaN();
    const auto rows_equal = [&](const at::Tensor& part, const at::Tensor& whole, int64_t first) {
      for (int64_t row = 0; row < part.size(0); ++row)
        if (first + row != kInfinite && first + row != kNan && !same_bits(part[row], whole[first + row])) return false;
      return true;
    };
    for (const bool with_bias : {false, true}) {
      const at::ScalarType result = with_bias ? type() : at::kFloat;
      const auto product = [&](const at::Tensor& rows) {
        return row_product(rows, weight, with_bias ? bias : at::Tensor(), result);
      };
      const at::Tensor whole = product(x);
      for (const int count : {1, 3}) {
        at::set_num_threads(count);
        for (const int64_t length : {1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 35, 36, 37, 72, 73})
          for (int64_t first = 0; first + length <= kTokens; first += length)
            EXPECT_TRUE(rows_equal(product(x.narrow(0, first, length).contiguous()), whole, first))
                << inputs << " " << first << " " << length << " bias " << with_bias;
      }
      at::set_num_threads(threads);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, RowProduct,
                         testing::Combine(testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                                          testing::ValuesIn(reference::instruction_sets())),
                         [](const auto& info) {
                           return std::string(c10::toString(std::get<0>(info.param))) + "_" +
                                  cpu_isa_name(std::get<1>(info.param));
                         });

}  // namespace row_product_test
}  // namespace espalier::kernels
