#include "text/internal/bpe_merges.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace espalier::text::internal {
namespace bpe_merges_test {

using Pair = std::pair<int32_t, int32_t>;

// As on a board: take the pair of lowest rank, merge all its occurrences from left to right, until none has a rank.
std::vector<int32_t> merged_plainly(std::vector<int32_t> symbols,
                                    const std::map<Pair, std::pair<int, int32_t>>& merges) {
  while (true) {
    std::pair<int, int32_t> best{INT32_MAX, 0};
    Pair best_pair;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = merges.find({symbols[i], symbols[i + 1]});
      if (found != merges.end() && found->second < best) best = found->second, best_pair = found->first;
    }
    if (best.first == INT32_MAX) return symbols;
    std::vector<int32_t> next;
    for (size_t i = 0; i < symbols.size(); ++i) {
      const bool here = i + 1 < symbols.size() && Pair{symbols[i], symbols[i + 1]} == best_pair;
      next.push_back(here ? best.second : symbols[i]);
      i += here ? 1 : 0;
    }
    symbols = next;
  }
}

TEST(BpeMerges, MergesAsThePlainAlgorithmWhateverTheLength) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 400; ++trial) {
    const int alphabet = 2 + static_cast<int>(random() % 3);
    BpeMerges merges;
    std::map<Pair, std::pair<int, int32_t>> plain;
    int32_t next_symbol = alphabet;
    for (int rank = 0; rank < 60; ++rank) {
      const Pair pair{static_cast<int32_t>(random() % next_symbol), static_cast<int32_t>(random() % next_symbol)};
      if (plain.count(pair) > 0) continue;
      merges.add(pair.first, pair.second, next_symbol);
      plain[pair] = {rank, next_symbol++};
    }
    std::vector<int32_t> symbols(trial % 7 == 0 ? 500 + random() % 500 : random() % 130);
    for (int32_t& symbol : symbols) symbol = static_cast<int32_t>(random() % alphabet);
    const std::vector<int32_t> expected = merged_plainly(symbols, plain);
    BpeMerges::Scratch scratch;
    symbols.resize(merges.merge(symbols.data(), symbols.size(), scratch));
    ASSERT_EQ(symbols, expected) << "trial " << trial;
  }
}

TEST(BpeMerges, ARepeatedPairHasItsLastRank) {
  BpeMerges merges;
  merges.add(0, 1, 5);
  merges.add(1, 2, 6);
  merges.add(0, 1, 5);
  EXPECT_EQ(merges.size(), 2u);
  std::vector<int32_t> symbols = {0, 1, 2};
  BpeMerges::Scratch scratch;
  symbols.resize(merges.merge(symbols.data(), symbols.size(), scratch));
  EXPECT_EQ(symbols, (std::vector<int32_t>{0, 6}));
}

}  // namespace bpe_merges_test
}  // namespace espalier::text::internal
