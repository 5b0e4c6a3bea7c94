// Maps of sentences, against a plain walk over them and by hand.
#include "data/sentence_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>
#include <vector>

namespace espalier::data {
namespace sentence_map_test {

// Documents as lists of sentence sizes.
struct Store {
  explicit Store(const std::vector<std::vector<int32_t>>& documents) {
    for (const auto& document : documents) {
      sizes.insert(sizes.end(), document.begin(), document.end());
      marks.push_back(static_cast<int64_t>(sizes.size()));
    }
  }
  Sentences view() const { return {DocumentSizes(std::span(sizes)), DocumentMarks(std::span(marks))}; }

  std::vector<int32_t> sizes;
  std::vector<int64_t> marks = {0};
};

std::vector<SentenceMap::Row> sorted_rows(const SentenceMap& map) {
  std::vector<SentenceMap::Row> rows;
  for (int64_t at = 0; at < map.size(); ++at) rows.push_back(map[at]);
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return rows;
}

TEST(SentenceMap, JoinsSentencesUntilTheTargetAndKeepsTheRestTogether) {
  const Store store({{4, 4, 4, 4, 4, 4}, {9}, {}, {20, 1, 1}});
  SentenceMapRequest request{.documents = {0, 4}, .max_length = 10, .short_probability = 0, .seed = 5, .name = "set"};
  // The first document: 4 + 4 + 4 is enough, the last three are what is left. A sample may be too long: 20 + 1 + 1.
  const SentenceMap one = SentenceMap::build(store.view(), request);
  EXPECT_EQ(sorted_rows(one),
            (std::vector<SentenceMap::Row>{{0, 3, 10}, {3, 6, 10}, {6, 7, 10}, {7, 8, 10}, {8, 10, 10}}));
  request.min_sentences = 2;
  const SentenceMap two = SentenceMap::build(store.view(), request);
  // 20 alone would be enough but is one sentence; with the next, one is left, which goes with them.
  EXPECT_EQ(sorted_rows(two), (std::vector<SentenceMap::Row>{{0, 3, 10}, {3, 6, 10}, {7, 10, 10}}));
  EXPECT_EQ(two.survey().num_too_few, 1);
  EXPECT_EQ(two.survey().num_empty, 1);
}

TEST(SentenceMap, FinishesTheEpochInWhichThereAreEnough) {
  const Store store({{4, 4, 4}, {5, 5, 5}, {6, 6, 6}});
  SentenceMapRequest request{.documents = {0, 3}, .max_length = 100, .short_probability = 0, .name = "set"};
  for (const auto& [asked, rows] : std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {1, 3}, {3, 3}, {4, 6}, {7, 9}}) {
    request.num_samples = asked;
    EXPECT_EQ(SentenceMap::build(store.view(), request).size(), rows) << asked;
  }
}

// In an epoch every sentence of a document that is used comes once, whatever the targets.
TEST(SentenceMap, EveryEpochReadsEverySentenceOnce) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::vector<int32_t>> documents(1 + random() % 12);
    for (auto& document : documents) {
      document.resize(random() % 10);
      for (int32_t& size : document) size = random() % 30 == 0 ? 513 : static_cast<int32_t>(random() % 60);
    }
    const Store store(documents);
    SentenceMapRequest request{.max_length = 2 + static_cast<int64_t>(random() % 100),
                               .num_samples = 0,
                               .short_probability = static_cast<double>(random() % 5) / 4,
                               .seed = static_cast<uint32_t>(random()),
                               .min_sentences = 1 + static_cast<int64_t>(random() % 2),
                               .name = "set"};
    request.documents.begin = static_cast<int64_t>(random() % documents.size());
    request.documents.end = static_cast<int64_t>(documents.size());
    std::vector<int> expected(store.sizes.size()), found(store.sizes.size());
    int64_t used = 0;
    for (auto document = static_cast<size_t>(request.documents.begin); document < documents.size(); ++document) {
      const auto& sizes = documents[document];
      const bool too_long = sizes.size() > 1 && *std::max_element(sizes.begin(), sizes.end()) > 512;
      if (sizes.empty() || static_cast<int64_t>(sizes.size()) < request.min_sentences || too_long) continue;
      ++used;
      for (size_t at = 0; at < sizes.size(); ++at) ++expected[static_cast<size_t>(store.marks[document]) + at];
    }
    if (used == 0) continue;
    const SentenceMap map = SentenceMap::build(store.view(), request);
    EXPECT_EQ(map.survey().num_used, used);
    for (const SentenceMap::Row& row : sorted_rows(map)) {
      EXPECT_GE(row.end - row.begin, request.min_sentences);
      EXPECT_TRUE(row.target >= 2 && row.target <= request.max_length) << row.target;
      for (int64_t sentence = row.begin; sentence < row.end; ++sentence) ++found[static_cast<size_t>(sentence)];
    }
    ASSERT_EQ(found, expected) << "round " << round;
  }
}

TEST(SentenceMap, DamagedMarksAreRefused) {
  Store store({{4, 4}, {5, 5}});
  store.marks[1] = 7;
  const SentenceMapRequest request{.documents = {0, 2}, .max_length = 10, .name = "train of wiki"};
  try {
    SentenceMap::build(store.view(), request);
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "train of wiki: document 0 is said to hold the sentences 0 to 7 of 4. The .idx is damaged; 'espalier "
                 "data check' reads all of it.");
  }
}

}  // namespace sentence_map_test
}  // namespace espalier::data
