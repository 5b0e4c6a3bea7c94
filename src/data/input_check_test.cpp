#include "data/input_check.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace espalier::data {
namespace {

// What a header of tar has at byte 257, a line of JSON may have there as well.
TEST(InputCheck, ALineWithTheLettersOfAnArchiveIsNone) {
  std::string line = "{\"text\": \"";
  line += std::string(256 - line.size(), 'x') + "mustard\"}\n";
  ASSERT_EQ(line.substr(257, 5), "ustar");
  EXPECT_NO_THROW(refuse_archive(line, "a.jsonl"));
  std::string header = "a.jsonl";
  header.resize(257);
  EXPECT_THROW(refuse_archive(header + "ustar", "a.tar"), UserError);
  EXPECT_NO_THROW(refuse_archive(header.substr(0, 257), "a.tar"));
}

}  // namespace
}  // namespace espalier::data
