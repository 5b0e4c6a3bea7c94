#include "kernels/newton_schulz.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <optional>
#include <tuple>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "kernels/reference_test.h"

namespace espalier::kernels {
namespace newton_schulz_test {

struct Size {
  int64_t rows, columns;
};
constexpr Size kSizes[] = {{1, 1}, {1, 7}, {7, 33}, {33, 129}, {64, 64}, {65, 200}, {96, 1000}, {161, 160}, {500, 33}};
constexpr int kNumSizes = 9;
constexpr NewtonSchulzStep kStep = {3.4445, -4.7750, 2.0315};  // Jordan's

// As the first iteration gets it: of Frobenius norm 1.
at::Tensor matrix_of(const Size& size, at::ScalarType type) {
  const at::Tensor x = reference::random({size.rows, size.columns}, at::kDouble, 1);
  return (x / x.norm()).to(type);
}

class NewtonSchulz : public testing::TestWithParam<std::tuple<at::ScalarType, int, CpuIsa>> {
 protected:
  void SetUp() override {
    if (!reference::has(std::get<2>(GetParam())))
      GTEST_SKIP() << "the machine reaches " << cpu_isa_name(best_cpu_isa());
    force_.emplace(std::get<2>(GetParam()));
  }
  at::ScalarType type() const { return std::get<0>(GetParam()); }
  Size size() const { return kSizes[std::get<1>(GetParam())]; }

 private:
  std::optional<ForceCpuIsa> force_;
};

// In double; what is allowed is what the roundings of the three products may add, to the first order and a tenth.
TEST_P(NewtonSchulz, EqualsDoubleWithinARoundingOfEachProduct) {
  const at::Tensor rounded = matrix_of(size(), type()), x = rounded.to(at::kDouble), magnitude = x.abs();
  const auto& [a, b, c] = kStep;
  const at::Tensor gram = x.mm(x.t()), polynomial = b * gram + c * gram.mm(gram);
  const at::Tensor expected = a * x + polynomial.mm(x);
  const double unit = reference::rounding(type()), m = static_cast<double>(size().rows),
               n = static_cast<double>(size().columns), fp32 = 0x1p-24;
  const at::Tensor gram_size = gram.abs();
  const at::Tensor gram_error = gram_size * unit + magnitude.mm(magnitude.t()) * (n + 2) * fp32;
  const at::Tensor error = std::abs(b) * gram_error + 2 * c * gram_size.mm(gram_error) + polynomial.abs() * unit +
                           (c * gram_size.mm(gram_size) + std::abs(b) * gram_size) * (m + 2) * fp32;
  const at::Tensor bound =
      error.mm(magnitude) + expected.abs() * unit + (a * magnitude + polynomial.abs().mm(magnitude)) * (m + 2) * fp32;
  reference::expect_within(newton_schulz(rounded, kStep), expected, 1.1 * bound + 1e-30, "X");
}

INSTANTIATE_TEST_SUITE_P(Bf16, NewtonSchulz,
                         testing::Combine(testing::Values(at::kBFloat16), testing::Range(0, kNumSizes),
                                          testing::Values(CpuIsa::kNeonBf16, CpuIsa::kAvx512Bf16, CpuIsa::kAmx)));
INSTANTIATE_TEST_SUITE_P(Fp32, NewtonSchulz,
                         testing::Combine(testing::Values(at::kFloat), testing::Range(0, kNumSizes),
                                          testing::Values(CpuIsa::kAvx2, CpuIsa::kAvx512)));

// Where the machine has no bf16 products.
INSTANTIATE_TEST_SUITE_P(Widened, NewtonSchulz,
                         testing::Combine(testing::Values(at::kBFloat16), testing::Range(0, kNumSizes),
                                          testing::Values(CpuIsa::kAvx2, CpuIsa::kAvx512)));

TEST(NewtonSchulzThreads, GiveTheSameBitsInBf16) {
  const int threads = at::get_num_threads();
  for (const CpuIsa isa : {CpuIsa::kNeonBf16, CpuIsa::kAvx512Bf16, CpuIsa::kAmx}) {
    if (!reference::has(isa)) continue;
    const ForceCpuIsa force(isa);
    for (const Size& size : kSizes) {
      const at::Tensor x = matrix_of(size, at::kBFloat16);
      at::set_num_threads(1);
      const at::Tensor one = newton_schulz(x, kStep);
      at::set_num_threads(3);
      EXPECT_TRUE(at::equal(newton_schulz(x, kStep), one)) << size.rows << " x " << size.columns;
    }
  }
  at::set_num_threads(threads);
}

TEST(NewtonSchulzOperands, ThatDoNotFitAreABug) {
  const at::Tensor x = matrix_of({7, 33}, at::kFloat);
  EXPECT_THROW(newton_schulz(x.t(), kStep), InternalError);
  EXPECT_THROW(newton_schulz(x.to(at::kHalf), kStep), InternalError);
  EXPECT_THROW(newton_schulz(x[0], kStep), InternalError);
}

}  // namespace newton_schulz_test
}  // namespace espalier::kernels
