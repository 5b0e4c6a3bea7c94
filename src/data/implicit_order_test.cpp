// An order that is computed, against plain loops over the row of tokens that it cuts.
#include "data/implicit_order.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>
#include <set>

#include "base/format.h"
#include "data/gpt_dataset.h"
#include "data/internal/test_folder.h"
#include "data/order_fingerprint.h"

namespace espalier::data {
namespace implicit_order_test {

using test_files::error_of;
using test_files::TestFolder;
using test_files::write_numbered;

TEST(KeyedPermutation, IsAPermutationAndItsInverse) {
  for (const int64_t size : {1, 2, 3, 7, 33, 64, 65, 1000, 4097}) {
    const KeyedPermutation permutation(size, 12345);
    std::vector<bool> seen(static_cast<size_t>(size));
    for (int64_t number = 0; number < size; ++number) {
      const int64_t image = permutation.at(number);
      ASSERT_TRUE(0 <= image && image < size) << size;
      EXPECT_FALSE(seen[static_cast<size_t>(image)]) << size << " " << image;
      seen[static_cast<size_t>(image)] = true;
      EXPECT_EQ(permutation.number_of(image), number) << size;
    }
  }
}

// Where a number goes must look like chance: over many keys each of 16 places is hit by 0 as often as by any other
// number, within five standard deviations, and neighbours do not stay neighbours.
TEST(KeyedPermutation, LooksLikeChance) {
  constexpr int kKeys = 16000, kSize = 16;
  int hits[kSize] = {}, neighbours = 0;
  for (uint64_t key = 0; key < kKeys; ++key) {
    const KeyedPermutation permutation(kSize, key);
    ++hits[permutation.at(0)];
    neighbours += permutation.at(1) == permutation.at(0) + 1;
  }
  for (const int count : hits) EXPECT_NEAR(count, kKeys / kSize, 5 * std::sqrt(kKeys / kSize));
  // 15 of the 240 ordered pairs of places are such neighbours.
  EXPECT_NEAR(neighbours, kKeys / kSize, 5 * std::sqrt(kKeys / kSize));
}

// Documents of some sizes, empty ones among them; the tokens are not read.
struct Files {
  explicit Files(const std::vector<int32_t>& sizes) {
    TokenStoreWriter writer(folder / "text", TokenType::kUint16);
    for (const int32_t size : sizes) {
      writer.add_sequence(std::vector<int32_t>(static_cast<size_t>(size), 1));
      writer.end_document();
    }
    writer.finish();
    store.emplace(folder / "text");
  }
  ImplicitOrder order(int64_t length, int64_t num_samples, DocumentRange documents, uint32_t seed = 5) const {
    return {store->index(), {documents, length, num_samples, seed, "test"}};
  }
  TestFolder folder;
  std::optional<TokenStore> store;
};

const std::vector<int32_t> kSizes = {3, 0, 1, 7, 0, 0, 33, 2, 1, 1, 12, 0};

// The row of tokens of a range, each as its document and offset.
std::vector<std::pair<int64_t, int64_t>> row_of(const std::vector<int32_t>& sizes, DocumentRange range) {
  std::vector<std::pair<int64_t, int64_t>> row;
  for (int64_t document = range.begin; document < range.end; ++document)
    for (int32_t offset = 0; offset < sizes[static_cast<size_t>(document)]; ++offset)
      row.emplace_back(document, offset);
  return row;
}

TEST(ImplicitOrder, EachEpochReadsEveryPieceOfTheRowOnce) {
  const Files files(kSizes);
  for (const DocumentRange range : {DocumentRange{0, 12}, DocumentRange{2, 11}, DocumentRange{6, 7}}) {
    const auto row = row_of(kSizes, range);
    for (const int64_t length : {1, 4, 7, 32}) {
      const int64_t per_epoch = (static_cast<int64_t>(row.size()) - 1) / length;
      const ImplicitOrder order = files.order(length, 2 * per_epoch + 1, range);
      ASSERT_EQ(order.size(), 3 * per_epoch);
      ASSERT_EQ(order.num_epochs(), 3);
      ASSERT_EQ(order.tokens_per_epoch(), static_cast<int64_t>(row.size()));
      std::vector<DocumentSpan> spans;
      for (int64_t epoch = 0; epoch < 3; ++epoch) {
        std::vector<int64_t> starts;
        for (int64_t sample = epoch * per_epoch; sample < (epoch + 1) * per_epoch; ++sample) {
          order.spans(sample, spans);
          const auto first = std::find(row.begin(), row.end(), std::pair(spans[0].document, spans[0].offset));
          ASSERT_NE(first, row.end());
          auto token = first;
          for (const DocumentSpan& span : spans) {
            EXPECT_GT(span.length, 0);
            for (int64_t at = 0; at < span.length; ++at, ++token)
              ASSERT_EQ(*token, std::pair(span.document, span.offset + at));
          }
          EXPECT_EQ(token - first, length + 1);
          starts.push_back(first - row.begin());
        }
        std::sort(starts.begin(), starts.end());
        for (size_t at = 1; at < starts.size(); ++at) EXPECT_EQ(starts[at] - starts[at - 1], length);
        EXPECT_GE(starts.front(), 0);
      }
    }
  }
}

TEST(ImplicitOrder, DependsOnSeedAndEpochButNotOnTheNumberAskedFor) {
  const Files files(std::vector<int32_t>(40, 10));
  const auto samples = [&](const ImplicitOrder& order, int64_t begin, int64_t end) {
    std::vector<DocumentSpan> all, spans;
    for (int64_t sample = begin; sample < end; ++sample) {
      order.spans(sample, spans);
      all.insert(all.end(), spans.begin(), spans.end());
    }
    return all;
  };
  const ImplicitOrder one = files.order(4, 1, {0, 40}), many = files.order(4, 1000, {0, 40});
  EXPECT_EQ(one.size(), 99);
  EXPECT_EQ(many.size(), 11 * 99);
  EXPECT_EQ(samples(one, 0, 99), samples(many, 0, 99));
  EXPECT_NE(samples(many, 0, 99), samples(many, 99, 198));
  EXPECT_NE(samples(one, 0, 99), samples(files.order(4, 1, {0, 40}, 6), 0, 99));
}

TEST(ImplicitOrder, FindsTheSamplesOfDocumentsAsALoopOverAllDoes) {
  const Files files(kSizes);
  for (const int64_t length : {1, 4, 7, 20}) {
    const ImplicitOrder order = files.order(length, 200, {1, 12});
    for (int64_t begin = 0; begin <= 12; ++begin)
      for (int64_t end = begin; end <= 12; ++end) {
        std::vector<Sighting> wanted;
        std::vector<DocumentSpan> spans;
        for (int64_t sample = 0; sample < order.size(); ++sample) {
          order.spans(sample, spans);
          int64_t at = 0;
          for (const DocumentSpan& span : spans) {
            if (begin <= span.document && span.document < end) wanted.push_back({sample, at, span});
            at += span.length;
          }
        }
        ASSERT_EQ(order.sightings({begin, end}), wanted) << length << " " << begin << " " << end;
      }
  }
}

TEST(ImplicitOrder, SaysWhereTheDocumentsAreShorterThanASample) {
  const Files files(kSizes);
  const std::string error = error_of([&] { files.order(60, 1, {0, 12}); });
  EXPECT_NE(error.find("holds 60 tokens, and a sample takes 61"), std::string::npos) << error;
  EXPECT_NE(error_of([&] { files.order(1, 1, {4, 6}); }).find("holds 0 tokens"), std::string::npos);
  EXPECT_EQ(files.order(59, 1, {0, 12}).size(), 1);
}

DataSetOptions options_for(const std::string& prefix, int64_t num_samples) {
  DataSetOptions options;
  options.data_path = {prefix};
  options.split = "1,0,0";
  options.sequence_length = 6;
  options.train_samples = num_samples;
  options.sample_order = OrderKind::kImplicit;
  return options;
}

TEST(ImplicitOrder, OfADataSetReadsWhatTheRowHoldsAndHasAFingerprintOfItsOwn) {
  TestFolder folder;
  DataSetOptions options = options_for(write_numbered(folder / "text", 50, 0), 100);
  const auto some = GptDataSets::open_train(options);
  std::vector<int64_t> ids(7), row;
  for (int64_t document = 0; document < 50; ++document)
    for (int64_t at = 0; at < 1 + document * 7 % 13; ++at) row.push_back(100 * document + at);
  std::set<int64_t> firsts;
  for (int64_t sample = 0; sample < 20; ++sample) {
    some->sample(sample, ids);
    EXPECT_NE(std::search(row.begin(), row.end(), ids.begin(), ids.end()), row.end());
    firsts.insert(ids.front());
  }
  EXPECT_EQ(firsts.size(), 20u);

  const OrderFingerprint saved = parse_order(to_text(order_fingerprint(*some, "single")));
  options.train_samples = 777;
  EXPECT_EQ(order_changes(saved, order_fingerprint(*GptDataSets::open_train(options), "single")),
            std::vector<std::string>());
  options.sample_order = OrderKind::kMegatron;
  EXPECT_FALSE(order_changes(saved, order_fingerprint(*GptDataSets::open_train(options), "single")).empty());
}

TEST(ImplicitOrder, AndBestFitPackingExcludeEachOther) {
  TestFolder folder;
  DataSetOptions options = options_for(write_numbered(folder / "text", 50, 0), 100);
  options.packing = Packing::kBestFit;
  EXPECT_NE(error_of([&] { GptDataSets::open_train(options); }).find("exclude each other"), std::string::npos);
}

int64_t private_kib() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8));
  return 0;
}

// A million documents of a million tokens each, in a file that takes no room on the disk.
TEST(ImplicitOrder, OfATrillionTokensTakesNoMemory) {
  constexpr int64_t kDocuments = 1'000'000, kTokens = 1'000'000;
  TestFolder folder;
  const std::string prefix = folder / "large";
  {
    std::string idx("MMIDIDX\0\0", 9);
    const auto add = [&](const auto* values, size_t count) {
      idx.append(reinterpret_cast<const char*>(values), count * sizeof *values);
    };
    const uint64_t version = 1, count = kDocuments, marks = kDocuments + 1;
    add(&version, 1), idx.push_back(8), add(&count, 1), add(&marks, 1);
    std::vector<int64_t> numbers(kDocuments + 1);
    std::iota(numbers.begin(), numbers.end(), 0);
    const std::vector<int32_t> sizes(kDocuments, kTokens);
    add(sizes.data(), sizes.size());
    std::vector<int64_t> starts(kDocuments);
    for (int64_t document = 0; document < kDocuments; ++document)
      starts[static_cast<size_t>(document)] = 2 * kTokens * document;
    add(starts.data(), starts.size());
    add(numbers.data(), numbers.size());
    std::ofstream(prefix + ".idx", std::ios::binary) << idx;
    std::ofstream(prefix + ".bin", std::ios::binary).close();
  }
  if (::truncate((prefix + ".bin").c_str(), 2 * kDocuments * kTokens) != 0)
    GTEST_SKIP() << "this file system has no files of 2 TB";
  DataSetOptions options = options_for(prefix, 10'000'000'000);
  options.sequence_length = 2048;
  const int64_t before = private_kib();
  const auto dataset = GptDataSets::open_train(options);
  std::vector<int64_t> ids(2049);
  for (const int64_t sample : {int64_t{0}, int64_t{123'456'789}, int64_t{9'999'999'999}}) dataset->sample(sample, ids);
  const OrderFingerprint fingerprint = order_fingerprint(*dataset, "single");
  EXPECT_LT(private_kib() - before, 16 << 10);
  EXPECT_EQ(fingerprint.parts[0].num_epochs, 21);  // of 488,281,249 samples
}

}  // namespace implicit_order_test
}  // namespace espalier::data
