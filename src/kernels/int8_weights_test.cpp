#include "kernels/int8_weights.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <tuple>

#include "base/cpu_isa.h"
#include "kernels/reference_test.h"

namespace espalier::kernels {
namespace int8_weights_test {

bool same(const at::Tensor& a, const at::Tensor& b) { return a.scalar_type() == b.scalar_type() && a.equal(b); }

// Every weight is a multiple of its row's scale, and off by half of that at most.
TEST(Int8Weights, AreWithinHalfAStepOfTheirRows) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const auto& [outputs, inputs] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {7, 33}, {33, 7}}) {
      at::Tensor weight = reference::random({outputs, inputs}, type, 3);
      weight[outputs - 1].zero_();
      const at::Tensor rows = to_int8_rows(weight);
      EXPECT_TRUE(has_int8_rows(rows));
      EXPECT_EQ(num_inputs(rows), inputs);
      EXPECT_EQ(num_inputs(weight), inputs);
      const at::Tensor wide = weight.to(at::kDouble), found = from_int8_rows(rows).to(at::kDouble);
      const at::Tensor step = std::get<0>(wide.abs().max(1, true)) / 127;
      reference::expect_within(found, wide, step.expand_as(wide) * (0.5 + 1e-5), "weights");
      const at::Tensor numbers = (found / step.clamp_min(1e-30));
      EXPECT_TRUE(at::allclose(numbers, numbers.round(), 0, 1e-4));
    }
}

TEST(Int8Weights, ProductIsThatOfDoubles) {
  for (const CpuIsa isa : reference::instruction_sets())
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
      for (const auto& [tokens, inputs, outputs] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
               {1, 1, 1}, {1, 7, 33}, {7, 33, 1}, {5, 65, 16}, {33, 130, 47}})
        for (const at::ScalarType result : {type, at::kFloat}) {
          const ForceCpuIsa force(isa);
          const at::Tensor x = reference::random({tokens, inputs}, type, 1),
                           rows = to_int8_rows(reference::random({outputs, inputs}, type, 2)),
                           bias = reference::random({outputs}, type, 3);
          const at::Tensor a = x.to(at::kDouble), w = from_int8_rows(rows).to(at::kDouble), b = bias.to(at::kDouble);
          const at::Tensor product = a.mm(w.t()), size = a.abs().mm(w.abs().t());
          reference::expect_within(int8_row_product(x, rows, {}, result), product,
                                   reference::product_bound(product, size, inputs, result), "without bias");
          reference::expect_within(int8_row_product(x, rows, bias, result), product + b,
                                   reference::product_bound(product + b, size + b.abs(), inputs, result), "with bias");
        }
}

// A row has the same bits alone, at every place among others, with any number of threads, on every instruction set.
TEST(Int8Weights, ARowOfAProductDependsOnItselfAlone) {
  constexpr int64_t kTokens = 37, kInputs = 77, kOutputs = 45;
  const at::Tensor x = reference::random({kTokens, kInputs}, at::kBFloat16, 1),
                   rows = to_int8_rows(reference::random({kOutputs, kInputs}, at::kBFloat16, 2));
  at::Tensor whole;
  {
    const ForceCpuIsa force(CpuIsa::kGeneric);
    whole = int8_row_product(x, rows, {}, at::kFloat);
  }
  const int threads = at::get_num_threads();
  for (const CpuIsa isa : reference::instruction_sets())
    for (const int count : {1, 3}) {
      const ForceCpuIsa force(isa);
      at::set_num_threads(count);
      for (const int64_t length : {1, 2, 3, 4, 5, 7, 33})
        for (int64_t first = 0; first + length <= kTokens; first += length)
          EXPECT_TRUE(
              same(int8_row_product(x.narrow(0, first, length), rows, {}, at::kFloat), whole.narrow(0, first, length)))
              << cpu_isa_name(isa) << " " << first << " " << length;
    }
  at::set_num_threads(threads);
}

}  // namespace int8_weights_test
}  // namespace espalier::kernels
