#include "base/literal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace espalier {
namespace {

// What CPython 3.11 answers for int(text) and float(text).
TEST(Literal, IntegersAreThoseOfPython) {
  EXPECT_EQ(parse_python_int("220_000_000"), 220000000);
  EXPECT_EQ(parse_python_int("+5"), 5);
  EXPECT_EQ(parse_python_int(" 5 "), 5);
  EXPECT_EQ(parse_python_int("-007"), -7);
  EXPECT_EQ(parse_python_int("9223372036854775807"), std::numeric_limits<int64_t>::max());
  for (const char* bad :
       {"", " ", "1e3", "5.0", "_5", "5_", "1__0", "0x10", "+-5", "5 5", "- 5", "9223372036854775808"})
    EXPECT_EQ(parse_python_int(bad), std::nullopt) << bad;
}

TEST(Literal, NumbersAreThoseOfPython) {
  EXPECT_EQ(parse_python_float("1e-8"), 1e-8);
  EXPECT_EQ(parse_python_float("1_0.5"), 10.5);
  EXPECT_EQ(parse_python_float(" .5 "), 0.5);
  EXPECT_EQ(parse_python_float("5."), 5.0);
  EXPECT_EQ(parse_python_float("-1E+1_0"), -1e10);
  EXPECT_EQ(parse_python_float("-inf"), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(parse_python_float("Infinity"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(parse_python_float("1e999"), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(parse_python_float("NaN").value()));
  for (const char* bad : {"", ".", "e5", "1e", "1_.5", "1._5", "0x1p3", "1.5f", "1,5", "in", "nan(1)"})
    EXPECT_EQ(parse_python_float(bad), std::nullopt) << bad;
}

TEST(Literal, NumbersPrintAsNumbers) {
  EXPECT_EQ(format_python_float(1), "1.0");
  EXPECT_EQ(format_python_float(-4294967296), "-4294967296.0");
  EXPECT_EQ(format_python_float(1e-8), "1e-08");
  EXPECT_EQ(format_python_float(0.1), "0.1");
}

}  // namespace
}  // namespace espalier
