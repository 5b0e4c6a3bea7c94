#include "curate/dedup/repeats.h"

#include <map>
#include <random>
#include <set>

#include "curate/internal/dedup_fixture.h"

namespace espalier::curate {
namespace {

// Which bytes are in a window that was seen before, by a set of all windows so far.
std::vector<std::vector<bool>> plain_repeats(const std::vector<std::string>& texts, size_t window) {
  std::set<std::string> seen;
  std::vector<std::vector<bool>> repeated;
  for (const std::string& text : texts) {
    std::vector<bool>& bytes = repeated.emplace_back(text.size());
    for (size_t at = 0; at + window <= text.size(); ++at)
      if (!seen.insert(text.substr(at, window)).second)
        for (size_t byte = at; byte < at + window; ++byte) bytes[byte] = true;
  }
  return repeated;
}

TEST(Repeats, AreAllWindowsThatOccurredBeforeForAnySizeOfShards) {
  std::mt19937 random(1);
  for (const size_t count : {0, 1, 7, 33, 200}) {
    std::vector<std::string> texts{""};
    for (size_t text = 0; text < count; ++text) {
      std::string made;
      for (size_t byte = 0, size = random() % 60; byte < size; ++byte) made += static_cast<char>('a' + random() % 4);
      if (random() % 3 == 0) {  // a stretch of an earlier one, or of this one
        const std::string& from = random() % 2 ? texts[random() % texts.size()] : made;
        made += from.substr(0, random() % 40);
      }
      texts.push_back(made);
    }
    texts.push_back(std::string(200, 'z'));
    const auto expected = plain_repeats(texts, 10);
    for (const int64_t memory : {0, 11 * 200, 11 * 1500, 1 << 22}) {
      const test::TestFolder folder;
      Repeats repeats(folder / "", 10, memory);
      std::vector<uint64_t> begins;
      for (const std::string& text : texts) begins.push_back(repeats.add(text));
      repeats.finish();
      const RepeatedRanges ranges(folder / "");
      for (size_t text = 0; text < texts.size(); ++text) {
        std::vector<bool> found(texts[text].size());
        for (const ByteRange& range : ranges.of(begins[text], texts[text].size()))
          for (uint64_t byte = range.node; byte < range.end; ++byte) found.at(byte) = true;
        EXPECT_EQ(found, expected[text]) << "text " << text << " of " << count << ", " << repeats.num_shards()
                                         << " shards";
      }
      if (memory == 1 << 22) {
        EXPECT_EQ(repeats.num_shards(), 1);
      }
      if (memory == 0 && count == 200) {
        EXPECT_GT(repeats.num_shards(), 50);
      }
    }
  }
}

TEST(Repeats, RangesShrinkToWholeCharacters) {
  EXPECT_EQ(without_ranges("a\xc3\xbc"
                           "b",
                           {{0, 2}}),
            "\xc3\xbc"
            "b");
  EXPECT_EQ(without_ranges("a\xc3\xbc"
                           "b",
                           {{2, 4}}),
            "a\xc3\xbc");
  EXPECT_EQ(without_ranges("\xe2\x82\xac", {{1, 2}}), "\xe2\x82\xac");
  EXPECT_EQ(without_ranges("abcdef", {{1, 2}, {4, 6}}), "acd");
  EXPECT_EQ(without_ranges("", {}), "");
}

TEST(SubstringsPass, CutsWhatOccurredBefore) {
  std::mt19937 random(2);
  std::string licence;
  for (int byte = 0; byte < 150; ++byte) licence += static_cast<char>('a' + random() % 26);
  const std::vector<std::string> texts{"first " + licence + " text", "second " + licence + " text", licence,
                                       licence.substr(0, 99), " \n"};
  for (const int64_t memory : {0, 1 << 24}) {
    const test::PassOutcome outcome = test::run_pass_over("substrings", "", texts, 2, memory);
    // The blanks around it and what follows are the same in both, so the stretch is longer than the licence.
    EXPECT_EQ(outcome.texts, (std::vector<std::string>{texts[0], "second", texts[3], " \n"}));
    EXPECT_EQ(outcome.tally.dropped, (std::map<std::string, int64_t>{{"only_duplicates", 1}}));
  }
}

}  // namespace
}  // namespace espalier::curate
