#include "base/hash.h"

#include <gtest/gtest.h>

#include <string>

namespace espalier {
namespace {

// The check value of CRC-32C in the catalogue of parametrised CRCs, and RFC 3720's 32 zero bytes.
TEST(Crc32c, KnownAnswers) {
  EXPECT_EQ(crc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0').data(), 32), 0x8a9136aau);
  EXPECT_EQ(crc32c("", 0), 0u);
}

TEST(Crc32c, ContinuesOverParts) { EXPECT_EQ(crc32c("56789", 5, crc32c("1234", 4)), 0xe3069283u); }

// XXH3 of nothing with seed 0, from xxHash's own test vectors.
TEST(Hash64, KnownAnswerAndPartsEqualWhole) {
  EXPECT_EQ(hash64("", 0), 0x2d06800538d394c2ull);
  const std::string text(1337, 'x');
  Hasher hasher;
  for (const size_t part : {size_t{1}, size_t{7}, size_t{33}, text.size() - 41}) hasher.update(text.data(), part);
  EXPECT_EQ(hasher.digest(), hash64(text));
}

TEST(Hex64, HasSixteenDigits) { EXPECT_EQ(hex64(0xabcull), "0000000000000abc"); }

}  // namespace
}  // namespace espalier
