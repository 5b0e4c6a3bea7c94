#include "kernels/fp8.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/cpu_isa.h"
#include "kernels/fp8_reference_test.h"
#include "kernels/reference_test.h"

namespace espalier::kernels {
namespace fp8_test {

using reference::random;
using spec::Fp8Format;

constexpr Fp8Format kFormats[] = {Fp8Format::kE4M3, Fp8Format::kE5M2};

// What the paper's table says of each code without a sign: those that are numbers, from 0 up, at the place of the code.
std::vector<double> numbers_of(Fp8Format format) {
  const bool is_e4m3 = format == Fp8Format::kE4M3;
  const int mantissa_bits = is_e4m3 ? 3 : 2, bias = is_e4m3 ? 7 : 15, last = is_e4m3 ? 0x7E : 0x7B;
  std::vector<double> numbers;
  for (int code = 0; code <= last; ++code) {
    const int exponent = code >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
    const double fraction = std::ldexp(mantissa, -mantissa_bits);
    numbers.push_back(exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias));
  }
  return numbers;
}

// The place of the nearest number; of two, the even one.
size_t nearest(const std::vector<double>& numbers, double magnitude) {
  size_t best = 0;
  for (size_t i = 1; i < numbers.size(); ++i) {
    const double distance = std::abs(numbers[i] - magnitude), best_distance = std::abs(numbers[best] - magnitude);
    if (distance < best_distance || (distance == best_distance && i % 2 == 0)) best = i;
  }
  return best;
}

at::Tensor of_bits(const at::Tensor& bits) { return bits.to(at::kShort).view(at::kBFloat16); }

// All magnitudes of bf16 up to one, each second one negative.
at::Tensor all_up_to(double largest) {
  const at::Tensor all = of_bits(at::arange(0x7F80));
  const at::Tensor wanted = all.masked_select(all.to(at::kDouble) <= largest).clone();
  wanted.slice(0, 1, std::nullopt, 2).neg_();
  return wanted;
}

TEST(Fp8, NumbersOfTheFormatsAreAtens) {
  for (const Fp8Format format : kFormats) {
    const std::vector<double> numbers = numbers_of(format);
    EXPECT_EQ(numbers.back(), fp8_reference::largest_number(format));
    const at::Tensor codes = at::arange(static_cast<int64_t>(numbers.size()), at::kByte);
    const at::Tensor read = codes.view(fp8_reference::type_of(format)).to(at::kDouble);
    EXPECT_TRUE(at::equal(read, at::tensor(numbers)));
  }
}

TEST(Fp8, EveryMagnitudeOfBf16GoesToTheNearestNumber) {
  // Where the scale changes, above and below; where it is limited; the least magnitude.
  for (const double largest :
       {1.0, 1.75, 1.7578125, 1.9921875, 448.0, 450.0, 57344.0, std::ldexp(1.75, 120), std::ldexp(1.0, 127),
        std::ldexp(1.0, -110), std::ldexp(1.7578125, -118), std::ldexp(1.0, -126), std::ldexp(1.0, -133)})
    for (const Fp8Format format : kFormats) {
      const at::Tensor x = all_up_to(largest), rounded = round_to_fp8(x, format);
      ASSERT_EQ(rounded.scalar_type(), at::kBFloat16);
      const std::vector<double> numbers = numbers_of(format);
      const int k = fp8_reference::scale_of(x, format);
      const at::Tensor wide = x.to(at::kDouble), wide_rounded = rounded.to(at::kDouble);
      const double *const values = wide.const_data_ptr<double>(), *const found = wide_rounded.const_data_ptr<double>();
      for (int64_t i = std::max<int64_t>(0, x.numel() - 9000); i < x.numel(); ++i) {  // 70 octaves
        const double value = values[i];
        const double wanted =
            std::ldexp(numbers[nearest(numbers, std::ldexp(std::abs(value), k))], -k) * (value < 0 ? -1 : 1);
        ASSERT_EQ(found[i], wanted) << value << " of at most " << largest << ", k = " << k;
      }
    }
}

TEST(Fp8, AtenRoundsTheSameAndWritesTheSameCodes) {
  for (const double largest : {1.0, 1.7578125, 448.0, 3e38, 1e-30})
    for (const Fp8Format format : kFormats) {
      const at::Tensor x = all_up_to(largest);
      EXPECT_TRUE(at::equal(round_to_fp8(x, format).to(at::kDouble), fp8_reference::rounded(x, format))) << largest;
      const at::Tensor largest_bits = x.abs().max().view(at::kShort);
      using Bits = spec::Fp8Bits<Fp8Format>;
      const spec::Fp8Grid grid = Bits::grid_of(static_cast<uint32_t>(largest_bits.item<int16_t>()), format);
      const at::Tensor values = x.to(at::kFloat), codes = fp8_reference::codes(x, format).view(at::kByte);
      for (int64_t i = 0; i < x.numel(); ++i)
        ASSERT_EQ(Bits::to_code(Bits::bits_of(values.const_data_ptr<float>()[i]), grid),
                  codes.const_data_ptr<uint8_t>()[i])
            << values[i].item<float>() << " of at most " << largest;
    }
}

TEST(Fp8, WhatIsRoundedStaysAsItIs) {
  for (const Fp8Format format : kFormats) {
    const at::Tensor once = round_to_fp8(random({33, 7}, at::kBFloat16, 1), format);
    EXPECT_TRUE(at::equal(round_to_fp8(once, format), once));
  }
}

TEST(Fp8, ZerosAndEmptyTensorsStay) {
  for (const Fp8Format format : kFormats) {
    EXPECT_EQ(round_to_fp8(at::empty({0, 5}, at::kBFloat16), format).sizes(), at::IntArrayRef({0, 5}));
    const at::Tensor zeros = at::zeros({33}, at::kBFloat16);
    EXPECT_TRUE(at::equal(round_to_fp8(zeros, format), zeros));
  }
}

TEST(Fp8, WhatIsNotFiniteBecomesNanInItsPlace) {
  for (const float bad : {INFINITY, -INFINITY, NAN})
    for (const Fp8Format format : kFormats) {
      const at::Tensor x = random({7, 33}, at::kBFloat16, 1);
      x[5][20] = bad;
      const at::Tensor rounded = round_to_fp8(x, format), is_nan = rounded.isnan();
      EXPECT_TRUE(is_nan[5][20].item<bool>()) << bad;
      EXPECT_EQ(is_nan.sum().item<int64_t>(), 1) << bad;
      EXPECT_EQ(rounded.isinf().sum().item<int64_t>(), 0) << bad;
    }
}

TEST(Fp8, EveryInstructionSetGivesTheSameBits) {
  for (const int64_t count : {1, 7, 33, 100003})
    for (const Fp8Format format : kFormats) {
      const at::Tensor x = random({count}, at::kBFloat16, count) * at::exp(4 * random({count}, at::kBFloat16, 5));
      if (count > 7) x[6] = NAN;
      at::Tensor generic;
      for (const CpuIsa isa : reference::instruction_sets()) {
        const ForceCpuIsa force(isa);
        const at::Tensor rounded = round_to_fp8(x, format);
        if (!generic.defined()) generic = rounded;
        EXPECT_EQ(std::memcmp(rounded.const_data_ptr(), generic.const_data_ptr(), rounded.nbytes()), 0)
            << cpu_isa_name(isa) << ", " << count << " elements";
      }
    }
}

}  // namespace fp8_test
}  // namespace espalier::kernels
