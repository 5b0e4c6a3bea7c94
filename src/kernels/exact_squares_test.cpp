// Sums of squares without rounding, against long integers made by hand and against 113-bit numbers.
#include "kernels/exact_squares.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace espalier::kernels {
namespace {
namespace exact_squares_test {

#ifdef __aarch64__
using Long = long double;  // 113 bits there
#else
using Long = __float128;
#endif

double exact(const std::vector<float>& values) {
  ExactSquares squares;
  squares.add(at::tensor(values));
  return ExactSquares::value(squares.numbers().data());
}

TEST(ExactSquares, OfFewNumbersAreWhatTheyAre) {
  EXPECT_EQ(exact({}), 0);
  EXPECT_EQ(exact({0, -0.0f}), 0);
  EXPECT_EQ(exact({3, -4}), 25);
  EXPECT_EQ(exact({0x1p-149f}), 0x1p-298);
  EXPECT_EQ(exact({0x1.8p-130f, 0x1p-149f}), 0x1.2p-259 + 0x1p-298);
  EXPECT_EQ(exact({0x1p64f, 0x1p-10f}), 0x1p128);            // 148 bits lower: rounded away
  EXPECT_EQ(exact({0x1p27f, 1, 1}), 0x1p54 + 2);             // to even
  EXPECT_EQ(exact({0x1p27f, 1, 1, 0x1p-149f}), 0x1p54 + 4);  // a little more than half of the last bit
  EXPECT_EQ(exact({0x1p27f, 1}), 0x1p54);                    // less than half
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(exact({largest, largest}), 2 * static_cast<double>(largest) * static_cast<double>(largest));
}

TEST(ExactSquares, OfInfinitiesAndNaN) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exact({1, -infinity, 2}), infinity);
  EXPECT_TRUE(std::isnan(exact({1, infinity, std::nanf("")})));
}

// Of magnitudes that a 113-bit number holds without rounding: from 2^-20 to 2^10, whose squares have 24 bits more.
std::vector<float> many(int64_t count) {
  std::vector<float> values;
  uint64_t state = 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const float fraction = static_cast<float>(state >> 40) * 0x1p-24f - 0.5f;
    values.push_back(std::ldexp(fraction, static_cast<int>(state >> 20 & 31) - 20));
  }
  return values;
}

TEST(ExactSquares, OfManyAreTheNearestDouble) {
  for (const int64_t count : {1, 7, 65535, 65537, 300001}) {
    const std::vector<float> values = many(count);
    Long sum = 0;
    for (const float value : values) sum += static_cast<Long>(value) * static_cast<Long>(value);
    EXPECT_EQ(exact(values), static_cast<double>(sum)) << count;
  }
}

TEST(ExactSquares, DoNotDependOnHowTheyAreDivided) {
  const at::Tensor values = at::tensor(many(200003));
  ExactSquares whole;
  whole.add(values);
  std::vector<double> total(ExactSquares::kNumNumbers);
  for (int64_t begin = 200003; begin > 0;) {
    const int64_t count = std::min<int64_t>(begin, 4999);
    begin -= count;
    ExactSquares part;
    part.add(values.narrow(0, begin, count));
    const std::vector<double> numbers = part.numbers();
    for (size_t at = 0; at < total.size(); ++at) total[at] += numbers[at];
  }
  EXPECT_EQ(ExactSquares::value(total.data()), ExactSquares::value(whole.numbers().data()));
}

}  // namespace exact_squares_test
}  // namespace
}  // namespace espalier::kernels
