// Against what BigScience's own code gave (tests/data/golden-use/pii.json).
#include "curate/steps/pii.h"

#include <algorithm>

#include "base/file.h"
#include "base/json.h"
#include "curate/internal/run_fixture.h"
#include "curate/steps/pii_keys.h"

namespace espalier::curate {
namespace {

TEST(Pii, FindsAndMasksAsUpstream) {
  const nlohmann::json golden = parse_json(read_file("tests/data/golden-use/pii.json"), "golden");
  ASSERT_GE(golden.at("cases").size(), 16u);
  for (const nlohmann::json& one : golden.at("cases")) {
    const std::string text = one.at("text");
    std::vector<PiiMatch> matches, expected;
    ASSERT_TRUE(find_pii(text, matches));
    for (const nlohmann::json& match : one.at("matches")) expected.push_back({match[0], match[1]});
    // The golden file names what occurs twice once.
    std::vector<PiiMatch> distinct;
    for (const PiiMatch& match : matches)
      if (std::find(distinct.begin(), distinct.end(), match) == distinct.end()) distinct.push_back(match);
    // Upstream lists its kinds in another order.
    std::stable_sort(expected.begin(), expected.end(),
                     [](const PiiMatch& a, const PiiMatch& b) { return a.tag < b.tag; });
    EXPECT_TRUE(distinct == expected) << text;
    const std::vector<std::string> results = one.at("redacted");
    EXPECT_NE(std::find(results.begin(), results.end(), redacted(text, matches)), results.end())
        << redacted(text, matches);
  }
}

TEST(Pii, MasksEveryOccurrenceAndCounts) {
  const test::Applied applied =
      test::apply("pii", "counts_key = \"pii\"", "To joe@mail.org. See xjoe@mail.orgx, @some_user");
  EXPECT_EQ(applied.text(), "To PI:EMAIL. See xPI:EMAILx, PI:USER");
  EXPECT_EQ(applied.document.metadata.json("pii"), "{\"EMAIL\":2,\"USER\":1}");
  EXPECT_EQ(test::apply("pii", "tags = [\"USER\"]", "joe@mail.org @some_user").text(), "joe@mail.org PI:USER");
  EXPECT_EQ(test::apply("pii", "", "").text(), "");
}

// Each form that the expression has, where nothing else in the text looks like one.
TEST(Pii, FindsAddressesOfEveryForm) {
  for (const char* address :
       {"1.2.3.4", "203.0.113.77", "255.255.255.255", "1:2:3:4:5:6:7:8", "1::", "1:2:3::", "1::2", "1:2::3:4",
        "1::2:3:4:5:6:7", "::1", "::2:3:4:5:6:7:8", "::ffff:1.2.3.4", "::ffff:0:1.2.3.4", "1:2::1.2.3.4"}) {
    std::vector<PiiMatch> matches;
    ASSERT_TRUE(find_pii(concat("It is ", address, " here. It was. It will be."), matches));
    // Where a colon or a dot may follow an address, the expression takes the shorter one.
    EXPECT_TRUE(std::any_of(matches.begin(), matches.end(), [&](const PiiMatch& match) {
      return match.tag == "IP_ADDRESS" && std::string(address).starts_with(match.text);
    })) << address;
  }
  for (const char* none : {"3.5 and 4.5 and 5.5.", "at 10:30, 11:30, 12:30", "1.2, 3.4", "a.b.c.d. e:f"}) {
    std::vector<PiiMatch> matches;
    ASSERT_TRUE(find_pii(none, matches));
    EXPECT_TRUE(matches.empty()) << none;
  }
}

// What makes a searcher that goes back step by step take for ever.
TEST(Pii, LongTokensTakeLittleTime) {
  std::string token;
  for (int part = 0; part < 20000; ++part) token += part % 2 == 0 ? "ab" : "12";
  std::vector<std::string> keys;
  ASSERT_TRUE(find_keys(token + "[", keys));
  EXPECT_EQ(keys.size(), 0u);
  ASSERT_TRUE(find_keys(token, keys));
  EXPECT_EQ(keys, std::vector<std::string>{token});
  std::vector<PiiMatch> matches;
  find_pii(std::string(200000, '1') + "[", matches);  // given up, but soon
}

}  // namespace
}  // namespace espalier::curate
