#include "text/internal/chars_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace espalier::text::internal {
namespace chars_map_test {

// A map whose only key is the byte `key`; laid out by hand as the header says, the root's children from unit 0 on.
std::string one_byte_map(uint8_t key, const std::string& replacement) {
  constexpr uint32_t kHasValue = 1u << 8, kIsValue = 1u << 31;
  std::vector<uint32_t> units(257, 0);
  units[key] = key | kHasValue | 1u << 10;
  units[key ^ 1u] = kIsValue;
  const auto trie_bytes = static_cast<uint32_t>(4 * units.size());
  std::string blob(reinterpret_cast<const char*>(&trie_bytes), 4);
  blob.append(reinterpret_cast<const char*>(units.data()), trie_bytes);
  return blob.append(replacement).append(1, '\0');
}

TEST(CharsMap, ReplacesAKey) {
  const CharsMap map(one_byte_map('b', "xyz"), "a test");
  EXPECT_EQ(map.longest("bc").num_bytes, 1u);
  EXPECT_EQ(map.longest("bc").replacement, "xyz");
  EXPECT_EQ(map.shortest("b\u00e9").num_bytes, 1u);
  EXPECT_EQ(map.longest("cb").num_bytes, 0u);
}

TEST(CharsMap, RefusesARuleThatEndsInsideACharacter) {
  const CharsMap map(one_byte_map(0xC3, "x"), "x.model");
  EXPECT_EQ(map.longest("e\u00e9").num_bytes, 0u);
  for (const bool longest : {true, false}) {
    try {
      longest ? map.longest("\u00e9") : map.shortest("\u00e9");
      FAIL() << "half of a character was replaced";
    } catch (const UserError& error) {
      EXPECT_STREQ(error.what(), "x.model: a rule for the first 1 bytes of '\u00e9' ends inside a character");
    }
  }
}

// The child of 'a' is 'a' again, by the same unit.
TEST(CharsMap, RefusesALoop) {
  std::vector<uint32_t> units(257, 0);
  // The place of its children is its own place less the offset: 0 again, as the root's.
  units['a'] = 'a' | static_cast<uint32_t>('a') << 10;
  const auto trie_bytes = static_cast<uint32_t>(4 * units.size());
  std::string blob(reinterpret_cast<const char*>(&trie_bytes), 4);
  blob.append(reinterpret_cast<const char*>(units.data()), trie_bytes);
  blob.append("x").append(1, '\0');
  try {
    const CharsMap map(blob, "x.model");
    FAIL() << "taken";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "x.model: its trie has keys of more than 256 bytes, or a loop");
    EXPECT_EQ(error.code(), ExitCode::kBadData);
  }
}

}  // namespace chars_map_test
}  // namespace espalier::text::internal
