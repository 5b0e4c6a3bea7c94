#include "base/format.h"

#include <gtest/gtest.h>

namespace espalier {
namespace format_test {

TEST(ParseBytes, UnitsOf1024AndOf1000) {
  EXPECT_EQ(parse_bytes("1GiB"), 1'073'741'824);
  EXPECT_EQ(parse_bytes("1.5 MiB"), 1'572'864);
  EXPECT_EQ(parse_bytes("80GB"), 80'000'000'000);
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("17B"), 17);
}

TEST(ParseBytes, WhatIsNoAmountIsNothing) {
  for (const char* text : {"", "GiB", "-1GiB", "1gb", "1e9", "1 GiB x", "nan", "inf", "99999999TiB", " 1"})
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
}

}  // namespace format_test
}  // namespace espalier
