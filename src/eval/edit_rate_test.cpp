// Expected values are sacrebleu 2.6.0's; those of the drawn pairs are printed by tests/oracle/edit_rates.py.
#include "eval/edit_rate.h"

#include <gtest/gtest.h>

#include "base/format.h"
#include "eval/text_metrics.h"

namespace espalier::eval {
namespace edit_rate_test {

class Draws {
 public:
  int draw(int count) {
    state_ = (state_ * 1103515245 + 12345) % (uint64_t{1} << 31);
    return static_cast<int>((state_ >> 8) % static_cast<uint64_t>(count));
  }
  std::vector<std::string> words(int count, int kinds) {
    std::vector<std::string> words;
    for (int i = 0; i < count; ++i) words.emplace_back(1, static_cast<char>('a' + draw(kinds)));
    return words;
  }

 private:
  uint64_t state_ = 7;
};

struct Pair {
  std::vector<std::string> text, reference;
};

// Order of the draws: as they stand in the script.
Pair drawn_pair(Draws& draws, int number) {
  const auto drawn_words = [&](int count) { return draws.words(count, 3 + draws.draw(20)); };
  Pair pair;
  pair.reference = drawn_words(1 + draws.draw(number % 10 == 0 ? 90 : 30));
  const int kind = draws.draw(3);
  if (kind == 0) {
    pair.text = drawn_words(draws.draw(40));
    return pair;
  }
  pair.text = pair.reference;
  const auto size = [&] { return static_cast<int>(pair.text.size()); };
  const int num_moves = 1 + draws.draw(4);
  for (int move = 0; move < num_moves; ++move) {
    const int first = draws.draw(size()), end = std::min(first + 1 + draws.draw(6), size());
    const std::vector<std::string> run(pair.text.begin() + first, pair.text.begin() + end);
    pair.text.erase(pair.text.begin() + first, pair.text.begin() + end);
    pair.text.insert(pair.text.begin() + draws.draw(size() + 1), run.begin(), run.end());
  }
  if (kind == 2)
    for (int num_wrong = draws.draw(4); num_wrong > 0; --num_wrong)
      pair.text[static_cast<size_t>(draws.draw(size()))] = "Z";
  return pair;
}

TEST(EditRate, OfDrawnPairs) {
  const std::vector<int64_t> expected = {4,  27, 2,  11, 5, 14, 29, 1, 26, 1, 60, 4, 30, 3, 2, 3, 3,  3, 3, 5,
                                         66, 1,  26, 16, 2, 3,  20, 1, 16, 2, 7,  1, 8,  4, 8, 1, 21, 3, 6, 33};
  Draws draws;
  for (size_t number = 0; number < expected.size(); ++number) {
    const Pair pair = drawn_pair(draws, static_cast<int>(number));
    const std::string text = join(pair.text, " "), reference = join(pair.reference, " ");
    EXPECT_EQ(edit_counts(text, reference), (Counts{expected[number], static_cast<int64_t>(pair.reference.size())}))
        << number << ": '" << text << "' instead of '" << reference << "'";
  }
}

TEST(EditRate, OfTextsThatHurt) {
  EXPECT_EQ(edit_counts("", ""), (Counts{0, 0}));
  EXPECT_EQ(edit_counts("a", ""), (Counts{1, 0}));
  EXPECT_EQ(edit_counts("", "a b"), (Counts{2, 2}));
  EXPECT_EQ(edit_counts("c d e a b", "A B  C D E "), (Counts{1, 5}));
  EXPECT_EQ(edit_counts("x y a b c d", "a b c d x y"), (Counts{1, 6}));
  EXPECT_EQ(edit_counts("d c b a", "a b c d"), (Counts{3, 4}));
  EXPECT_EQ(edit_counts("a b c d e f g h i j k l m", "b a c e d f g i h j l k m"), (Counts{4, 13}));
  EXPECT_EQ(edit_counts("the the the cat", "cat the the"), (Counts{2, 3}));
  EXPECT_EQ(edit_rate_of({0, 0}), 0);
  EXPECT_EQ(edit_rate_of({1, 0}), 100);
}

TEST(EditRate, OfACorpus) {
  const std::vector<std::string> references = {"The cat sat on the mat, near 3.5 dogs.",
                                               "It is a nice (very nice) day today.", "naïve é – test", "one"};
  const std::vector<std::string> texts = {"The cat sat on a mat near 3.5 dogs .", "It is nice day (very) today!",
                                          "naive é - test", "two words"};
  Items items;
  for (size_t i = 0; i < texts.size(); ++i) items.push_back({.counts = edit_counts(texts[i], references[i])});
  EXPECT_NEAR(edit_rate().value(items), 59.09090909090909, 1e-12);
  EXPECT_NEAR(edit_rate().value({items.begin() + 2, items.end()}), 80.0, 1e-12);
}

}  // namespace edit_rate_test
}  // namespace espalier::eval
