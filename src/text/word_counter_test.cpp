#include "text/word_counter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace espalier::text {
namespace word_counter_test {

using Rows = std::vector<std::pair<std::string, int64_t>>;

Rows rows(std::span<WordCounter> counters) {
  Rows result;
  for_each_word(counters, [&](std::string_view word, int64_t count) { result.emplace_back(word, count); });
  return result;
}

// Words of all lengths, with zeros and bytes above 127, the short ones often.
std::vector<std::string> some_words(size_t count) {
  std::mt19937 draw(7);
  std::vector<std::string> words;
  for (size_t i = 0; i < count; ++i) {
    std::string word(draw() % (i % 100 == 0 ? 3000 : 5), '\0');
    for (char& byte : word) byte = static_cast<char>(draw() % 3 * 127);
    words.push_back(word);
  }
  return words;
}

TEST(WordCounter, CountsLikeAnOrderedMapWhateverTheMemoryAndTheNumberOfCounters) {
  const std::vector<std::string> words = some_words(20'011);
  std::map<std::string, int64_t> expected;
  for (const std::string& word : words) ++expected[word];
  for (const size_t num_counters : {1, 2, 7}) {
    for (const int64_t max_bytes : {1, 500, 5'000, 100'000'000}) {
      std::vector<WordCounter> counters;
      for (size_t i = 0; i < num_counters; ++i) counters.emplace_back(max_bytes, testing::TempDir());
      for (size_t i = 0; i < words.size(); ++i) counters[i % num_counters].add(words[i]);
      const Rows found = rows(counters);
      EXPECT_TRUE(std::equal(found.begin(), found.end(), expected.begin(), expected.end(),
                             [](const auto& a, const auto& b) { return a.first == b.first && a.second == b.second; }))
          << num_counters << " counters of " << max_bytes << " bytes: " << found.size() << " words, expected "
          << expected.size();
      EXPECT_EQ(counters[0].spilled_bytes() > 0, max_bytes <= 5'000);
      EXPECT_EQ(rows(counters), found) << "the second time";
      for (WordCounter& counter : counters) counter.spill();
      EXPECT_EQ(rows(counters), found) << "all spilled";
    }
  }
}

TEST(WordCounter, TableStaysWithinItsBound) {
  for (const int64_t max_bytes : {5'000, 77'777, 1'000'000}) {
    WordCounter counter(max_bytes, testing::TempDir());
    int64_t most = 0;
    for (int i = 0; i < 50'000; ++i) {
      counter.add("word " + std::to_string(i));
      most = std::max(most, counter.table_bytes());
    }
    EXPECT_LE(most, max_bytes);
    EXPECT_GE(most, max_bytes / 3) << "most of the memory is to be used";
  }
}

TEST(WordCounter, WordLargerThanTheBoundIsCounted) {
  WordCounter counter(1'000, testing::TempDir());
  const std::string large(100'000, 'x');
  for (const std::string& word : {std::string("a"), large, std::string("b"), large}) counter.add(word);
  EXPECT_EQ(rows({&counter, 1}), (Rows{{"a", 1}, {"b", 1}, {large, 2}}));
}

TEST(WordCounter, NoWordsGiveNoRows) {
  WordCounter counter(1'000, testing::TempDir());
  counter.spill();
  EXPECT_EQ(rows({&counter, 1}), Rows());
  EXPECT_EQ(counter.spilled_bytes(), 0);
}

TEST(WordCounter, NothingIsLeftInTheFolder) {
  const std::filesystem::path folder = testing::TempDir() + "espalier_word_counter";
  std::filesystem::create_directories(folder);
  WordCounter counter(1'000, folder);
  for (int i = 0; i < 1'000; ++i) counter.add(std::to_string(i));
  EXPECT_GT(counter.spilled_bytes(), 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove(folder);
}

TEST(WordCounter, FolderThatIsNotThereIsNamed) {
  WordCounter counter(1'000, "/nowhere/at/all");
  counter.add("word");
  try {
    counter.spill();
    FAIL() << "expected an error";
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()),
              "cannot create a temporary file for word counts in /nowhere/at/all: No such file or directory. Free some "
              "space there, or raise --memory so that none is needed.");
  }
}

}  // namespace word_counter_test
}  // namespace espalier::text
