#include "curate/dedup/simhash.h"

#include <algorithm>
#include <array>
#include <bit>
#include <random>

#include "curate/internal/dedup_fixture.h"

namespace espalier::curate {
namespace {

TEST(SimHash, EachBitIsTheMajority) {
  EXPECT_EQ(simhash_of(std::vector<uint64_t>{0b0111, 0b0011, 0b0001}), 0b0011u);
  EXPECT_EQ(simhash_of(std::vector<uint64_t>{0b01, 0b10}), 0u);  // ties
  EXPECT_EQ(simhash_of(std::vector<uint64_t>{~uint64_t{0}}), ~uint64_t{0});
  EXPECT_EQ(simhash("It's  a\n(Test)!", 6), simhash("its a test", 6));
  EXPECT_NE(simhash("a b c d e f g", 6), simhash("g f e d c b a", 6));
  EXPECT_FALSE(simhash("", 6));
  EXPECT_FALSE(simhash(" .,! \n", 6));
}

TEST(SimHash, HashesThatAreNearShareAKey) {
  std::mt19937_64 random(1);
  for (const auto& [blocks, distance, choices] :
       std::vector<std::array<int64_t, 3>>{{6, 4, 15}, {7, 3, 35}, {1, 0, 1}}) {
    const std::vector<uint64_t> masks = key_masks(blocks, distance);
    EXPECT_EQ(static_cast<int64_t>(masks.size()), choices);
    for (int pair = 0; pair < 1000; ++pair) {
      const uint64_t a = random();
      uint64_t b = a;
      for (int64_t bit = 0; bit < distance; ++bit) b ^= uint64_t{1} << random() % 64;
      EXPECT_TRUE(std::any_of(masks.begin(), masks.end(), [&](uint64_t mask) { return ((a ^ b) & mask) == 0; }));
    }
  }
}

TEST(SimHashPass, EqualsAComparisonOfAllPairs) {
  std::mt19937 random(2);
  std::vector<std::string> texts{"", " ", "...", "one", "one"};
  for (int family = 0; family < 60; ++family) {
    std::vector<std::string> words;
    for (int word = 0; word < 300; ++word) words.push_back(concat("w", random() % 5000));
    for (int member = 0; member < 8; ++member) {
      std::string text;
      for (const std::string& word : words) text += word + " ";
      texts.push_back(text);
      for (int edit = 0; edit < member / 2; ++edit) words[random() % words.size()] = "edited";
    }
  }
  std::shuffle(texts.begin(), texts.end(), random);
  std::vector<size_t> least(texts.size());
  for (size_t text = 0; text < texts.size(); ++text) least[text] = text;
  std::vector<std::optional<uint64_t>> hashes;
  for (const std::string& text : texts) hashes.push_back(simhash(text, 6));
  int num_near = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t a = 0; a < texts.size(); ++a)
      for (size_t b = a + 1; b < texts.size(); ++b) {
        if (!hashes[a] || !hashes[b] || std::popcount(*hashes[a] ^ *hashes[b]) > 4) continue;
        num_near += *hashes[a] != *hashes[b];
        const size_t to = std::min(least[a], least[b]);
        changed |= least[a] != to || least[b] != to;
        least[a] = least[b] = to;
      }
  }
  std::vector<int64_t> kept;
  for (size_t text = 0; text < texts.size(); ++text)
    if (least[text] == text) kept.push_back(static_cast<int64_t>(text));
  EXPECT_GT(num_near, 20);
  ASSERT_GT(kept.size(), 60u);
  for (const int64_t memory : {1 << 12, 1 << 24})
    for (const int workers : {1, 3})
      EXPECT_EQ(test::run_pass_over("simhash", "", texts, workers, memory).numbers, kept);
  EXPECT_EQ(test::problems_of("simhash", "distance = 6").find("--distance 6 is not less than --blocks 6") ==
                std::string::npos,
            false);
}

}  // namespace
}  // namespace espalier::curate
