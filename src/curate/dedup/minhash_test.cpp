#include "curate/dedup/minhash.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "base/file.h"
#include "curate/dedup/jaccard.h"

namespace espalier::curate {
namespace {

const std::vector<MinHashIsa>& isas_of_machine() {
  static const std::vector<MinHashIsa> isas = [] {
    std::vector<MinHashIsa> all{MinHashIsa::kGeneric};
    if (best_minhash_isa() >= MinHashIsa::kAvx2) all.push_back(MinHashIsa::kAvx2);
    if (best_minhash_isa() >= MinHashIsa::kAvx512) all.push_back(MinHashIsa::kAvx512);
    return all;
  }();
  return isas;
}

const nlohmann::json& golden_minhash() {
  static const auto golden = nlohmann::json::parse(read_file("tests/data/golden-use/minhash.json"));
  return golden;
}

TEST(MinHash, SeedsAreThoseOfTheOriginal) {
  EXPECT_EQ(openwebtext_seeds(), golden_minhash()["seeds"].get<std::vector<uint32_t>>());
}

TEST(MinHash, SignaturesEqualTheOriginalsToTheBitOnEveryInstructionSet) {
  for (const MinHashIsa isa : isas_of_machine()) {
    const WindowMinHash minhash(openwebtext_seeds(), isa);
    for (const auto& [name, text] : golden_minhash()["texts"].items()) {
      EXPECT_EQ(minhash(text.get<std::string>()), golden_minhash()["fingerprints"][name].get<std::vector<uint32_t>>())
          << name;
    }
  }
}

TEST(MinHash, PairsShareTheBandsValuesAndShinglesThatTheOriginalFound) {
  const WindowMinHash minhash(openwebtext_seeds());
  for (const auto& [pair, expected] : golden_minhash()["pairs"].items()) {
    const std::string a = golden_minhash()["texts"][pair.substr(0, pair.find('|'))];
    const std::string b = golden_minhash()["texts"][pair.substr(pair.find('|') + 1)];
    const std::vector<uint32_t> values_a = minhash(a), values_b = minhash(b);
    const auto bands_a = band_hashes<uint32_t>(values_a, 10, 10), bands_b = band_hashes<uint32_t>(values_b, 10, 10);
    int same_bands = 0, equal_values = 0;
    for (size_t band = 0; band < bands_a.size(); ++band) same_bands += bands_a[band] == bands_b[band];
    for (size_t value = 0; value < values_a.size(); ++value) equal_values += values_a[value] == values_b[value];
    EXPECT_EQ(same_bands, expected["same_bands"]) << pair;
    EXPECT_EQ(equal_values, expected["equal_hashes"]) << pair;
    const ShingleSet set_a = openwebtext_shingles(a), set_b = openwebtext_shingles(b);
    EXPECT_EQ(jaccard(set_a, set_b, JaccardDivisor::kUnion), expected["union"].get<double>()) << pair;
    EXPECT_EQ(jaccard(set_a, set_b, JaccardDivisor::kMin), expected["min"].get<double>()) << pair;
    EXPECT_EQ(jaccard(set_a, set_b, JaccardDivisor::kMax), expected["max"].get<double>()) << pair;
  }
}

// MurmurHash3_x86_32 as its paper has it, for texts of any length.
uint32_t plain_murmur(const std::string& text, uint32_t seed) {
  const auto rotate = [](uint32_t x, int by) { return x << by | x >> (32 - by); };
  uint32_t h = seed;
  const size_t blocks = text.size() / 4;
  const auto byte = [&](size_t at) { return static_cast<uint32_t>(static_cast<uint8_t>(text[at])); };
  for (size_t block = 0; block < blocks; ++block) {
    uint32_t k = byte(4 * block) | byte(4 * block + 1) << 8 | byte(4 * block + 2) << 16 | byte(4 * block + 3) << 24;
    h ^= rotate(k * 0xcc9e2d51u, 15) * 0x1b873593u;
    h = rotate(h, 13) * 5 + 0xe6546b64u;
  }
  uint32_t k = 0;
  for (size_t at = text.size(); at-- > blocks * 4;) k = k << 8 | byte(at);
  h ^= rotate(k * 0xcc9e2d51u, 15) * 0x1b873593u;
  h ^= static_cast<uint32_t>(text.size());
  h = (h ^ h >> 16) * 0x85ebca6bu;
  h = (h ^ h >> 13) * 0xc2b2ae35u;
  return h ^ h >> 16;
}

TEST(MinHash, SignaturesOfRandomBytesEqualAPlainLoop) {
  std::mt19937 random(3);
  for (const size_t size : {0, 1, 4, 5, 6, 7, 33, 1030, 5000}) {
    std::string text(size, '\0');
    for (char& byte : text) byte = static_cast<char>(random() % (size > 1000 ? 7 : 256));
    for (const size_t num_seeds : {1, 7, 33, 100}) {
      std::vector<uint32_t> seeds(num_seeds), expected(num_seeds, 0xFFFFFFFFu);
      for (uint32_t& seed : seeds) seed = static_cast<uint32_t>(random());
      for (size_t value = 0; value < num_seeds; ++value)
        for (size_t at = 0; at + 5 <= size; ++at)
          expected[value] =
              static_cast<uint32_t>(std::min(static_cast<int32_t>(expected[value]),
                                             static_cast<int32_t>(plain_murmur(text.substr(at, 5), seeds[value]))));
      for (const MinHashIsa isa : isas_of_machine())
        EXPECT_EQ(WindowMinHash(seeds, isa)(text), expected) << size << " bytes, " << num_seeds << " seeds";
    }
  }
}

TEST(MinHash, EveryInstructionSetGivesTheSameValuesOfShingles) {
  std::mt19937_64 random(4);
  for (const size_t size : {0, 1, 7, 33, 1000}) {
    std::vector<uint64_t> shingles(size);
    for (uint64_t& shingle : shingles) shingle = random();
    for (const int64_t values : {1, 7, 33, 112}) {
      const auto expected = ShingleMinHash(values, 5, MinHashIsa::kGeneric)(shingles);
      EXPECT_EQ(static_cast<int64_t>(expected.size()), values);
      for (const MinHashIsa isa : isas_of_machine()) EXPECT_EQ(ShingleMinHash(values, 5, isa)(shingles), expected);
    }
  }
}

TEST(MinHash, ShinglesAreRunsOfLowerCasedWords) {
  const auto of = [](const std::string& text) { return shingle_hashes(text, ShingleUnit::kWords, 3); };
  EXPECT_EQ(of("One, two; THREE... four"), of("one two three four"));
  EXPECT_EQ(of("one two three four").size(), 2u);
  EXPECT_NE(of("one two three four")[0], of("one two three four")[1]);
  EXPECT_EQ(of("Über die Brücke"), of("über DIE brücke!"));
  EXPECT_EQ(of("two words").size(), 1u);
  EXPECT_NE(of("two words"), of("twowords"));
  EXPECT_TRUE(of("").empty());
  EXPECT_TRUE(of(" \n\t ... ").empty());
  EXPECT_EQ(shingle_hashes("äbcde", ShingleUnit::kCharacters, 3).size(), 3u);
}

// Pairs of sets with 200 shingles together, of which that share is common.
TEST(MinHash, RecallOnPlantedPairsFollowsTheCurve) {
  constexpr int kPairs = 4000;
  std::mt19937_64 random(6);
  for (const auto& [bands, rows] : std::vector<std::pair<int64_t, int64_t>>{{14, 8}, {20, 5}}) {
    const ShingleMinHash minhash(bands * rows, 1);
    for (const double similarity : {0.5, 0.6, 0.7, 0.8, 0.9, 0.95}) {
      int found = 0;
      for (int pair = 0; pair < kPairs; ++pair) {
        std::vector<uint64_t> a, b;
        for (int shingle = 0; shingle < 200; ++shingle) {
          const uint64_t value = random();
          const bool common = shingle < static_cast<int>(std::lround(200 * similarity));
          if (common || shingle % 2 == 0) a.push_back(value);
          if (common || shingle % 2 == 1) b.push_back(value);
        }
        const auto bands_a = band_hashes<uint64_t>(minhash(a), bands, rows);
        const auto bands_b = band_hashes<uint64_t>(minhash(b), bands, rows);
        bool candidates = false;
        for (size_t band = 0; band < bands_a.size(); ++band) candidates |= bands_a[band] == bands_b[band];
        found += candidates;
      }
      EXPECT_NEAR(static_cast<double>(found) / kPairs, candidate_chance(similarity, bands, rows), 0.02)
          << similarity << ", " << bands << " x " << rows;
    }
  }
  EXPECT_DOUBLE_EQ(candidate_chance(0.5, 2, 1), 0.75);
}

}  // namespace
}  // namespace espalier::curate
