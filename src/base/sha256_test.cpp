// Expected values are the published examples of FIPS 180-4 and RFC 4231.
#include "base/sha256.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

TEST(Sha256, EqualsThePublishedExamples) {
  EXPECT_EQ(hex_digits(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex_digits(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_digits(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex_digits(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, IsTheSameInPartsOfAnySize) {
  const std::string text(1'000, 'x');
  for (const size_t part : {1, 7, 63, 64, 65, 333}) {
    Sha256 sum;
    for (size_t at = 0; at < text.size(); at += part) sum.update(std::string_view(text).substr(at, part));
    EXPECT_EQ(sum.digest(), sha256(text)) << part;
  }
}

TEST(Sha256, HmacEqualsThePublishedExamples) {
  EXPECT_EQ(hex_digits(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex_digits(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex_digits(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Sha256, ComparesBytesAndLengths) {
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_TRUE(equal_in_constant_time("secret", "secret"));
  EXPECT_FALSE(equal_in_constant_time("secret", "secreT"));
  EXPECT_FALSE(equal_in_constant_time("secret", "secret "));
}

TEST(Sha256, RandomBytesDiffer) { EXPECT_NE(random_bytes(32), random_bytes(32)); }

}  // namespace
}  // namespace espalier
