#include "data/sample_index.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cstring>
#include <fstream>
#include <map>

#include "base/hash.h"
#include "base/sha256.h"
#include "data/blend.h"
#include "data/splits.h"
#include "tests/support/npy.h"
#include "tests/support/oracle.h"

namespace espalier::data {
namespace {

using Json = nlohmann::json;

std::vector<int64_t> array_values(const IndexArray& array) {
  std::vector<int64_t> values;
  for (int64_t at = 0; at < array.size(); ++at) values.push_back(array[at]);
  return values;
}

std::string sha256_of(const IndexArray& array) {
  return hex_digits(sha256({static_cast<const char*>(array.data()), array.size_bytes()}));
}

SampleIndex small_index(const DocumentRange& documents, int64_t num_samples) {
  static const std::vector<int32_t> sizes{5, 9, 3, 14, 7, 1, 11};
  return SampleIndex::build(std::span(sizes), {documents, 8, num_samples, 1234, "small"});
}

// The three small cases: numpy 2.4.6 and a reading of upstream's source.
TEST(SampleIndex, SeparateLastEpoch) {
  const SampleIndex index = small_index({0, 7}, 14);
  EXPECT_TRUE(index.plan().separate_last_epoch);
  EXPECT_EQ(array_values(index.documents()),
            (std::vector<int64_t>{5, 3, 0, 4, 6, 2, 2, 0, 1, 1, 4, 5, 6, 3, 5, 1, 3, 4, 0, 6, 2}));
  EXPECT_EQ(array_values(index.starts()),
            (std::vector<int64_t>{0, 0,  1, 7,  2, 1,  3,  4,  4, 5,  5, 2,  7,  4,  8, 7,  9, 6,  10,
                                  5, 12, 5, 13, 2, 13, 10, 15, 3, 16, 2, 16, 10, 17, 4, 19, 0, 19, 8}));
  EXPECT_EQ(array_values(index.order()),
            (std::vector<int64_t>{7, 1, 10, 5, 8, 4, 3, 11, 2, 6, 9, 0, 14, 17, 16, 13, 12, 15}));
}

TEST(SampleIndex, LastEpochReadToNinetyFivePercentIsShuffledWithTheOthers) {
  const SampleIndex index = small_index({0, 7}, 11);
  EXPECT_FALSE(index.plan().separate_last_epoch);
  EXPECT_EQ(array_values(index.documents()), (std::vector<int64_t>{5, 3, 0, 4, 6, 2, 2, 0, 1, 1, 4, 5, 6, 3}));
  EXPECT_EQ(array_values(index.order()), (std::vector<int64_t>{7, 11, 2, 3, 1, 9, 5, 4, 0, 8, 6, 10}));
}

TEST(SampleIndex, RangeOfDocuments) {
  const SampleIndex index = small_index({1, 6}, 4);
  EXPECT_EQ(array_values(index.documents()), (std::vector<int64_t>{5, 1, 2, 3, 4}));
  EXPECT_EQ(array_values(index.starts()), (std::vector<int64_t>{0, 0, 1, 7, 3, 3, 3, 11, 4, 5}));
  EXPECT_EQ(array_values(index.order()), (std::vector<int64_t>{2, 1, 3, 0}));
}

TEST(SampleIndex, SpansJoinDocumentsAndShareOneTokenWithTheNext) {
  const SampleIndex index = small_index({1, 6}, 4);
  std::vector<DocumentSpan> spans;
  index.spans(3, spans);  // the first in the row of tokens: document 5, then 8 tokens of document 1
  EXPECT_EQ(spans, (std::vector<DocumentSpan>{{5, 0, 1}, {1, 0, 8}}));
  index.spans(1, spans);  // its neighbour starts on the token that the first ends with
  EXPECT_EQ(spans, (std::vector<DocumentSpan>{{1, 7, 2}, {2, 0, 3}, {3, 0, 4}}));
}

TEST(SampleIndex, EmptyDocumentsGiveNoSpans) {
  const std::vector<int32_t> sizes{0, 2, 0, 0, 3, 0, 4, 0};
  const SampleIndex index = SampleIndex::build(std::span(sizes), {{0, 8}, 3, 20, 5, "gaps"});
  std::vector<DocumentSpan> spans;
  for (int64_t sample = 0; sample < index.size(); ++sample) {
    index.spans(sample, spans);
    int64_t tokens = 0;
    for (const DocumentSpan& span : spans) {
      EXPECT_GT(span.length, 0);
      EXPECT_LE(span.offset + span.length, sizes[span.document]);
      tokens += span.length;
    }
    EXPECT_EQ(tokens, 4) << "sample " << sample;
  }
}

// Every token of the row except the last is the first of exactly one label: the samples before shuffling, put one
// after another, give the documents back.
TEST(SampleIndex, SamplesInOrderGiveTheDocumentsBack) {
  const SampleIndex index = small_index({0, 7}, 14);
  std::map<int64_t, int64_t> sample_at;
  for (int64_t sample = 0; sample < index.size(); ++sample) sample_at[index.order()[sample]] = sample;
  std::vector<std::pair<int64_t, int64_t>> joined, expected;
  std::vector<DocumentSpan> spans;
  for (const auto& [place, sample] : sample_at) {
    index.spans(sample, spans);
    if (!joined.empty()) joined.pop_back();
    for (const DocumentSpan& span : spans)
      for (int64_t token = 0; token < span.length; ++token) joined.emplace_back(span.document, span.offset + token);
  }
  const int32_t sizes[] = {5, 9, 3, 14, 7, 1, 11};
  for (const int64_t document : array_values(index.documents()))
    for (int64_t token = 0; token < sizes[document]; ++token) expected.emplace_back(document, token);
  expected.resize(joined.size());
  EXPECT_EQ(joined, expected);
  EXPECT_EQ(static_cast<int64_t>(joined.size()), 8 * index.size() + 1);
}

TEST(SampleIndex, NoSamplesAskedForGiveOneEpoch) {
  const SampleIndex index = small_index({0, 7}, 0);
  EXPECT_EQ(index.plan().num_epochs, 1);
  EXPECT_EQ(index.size(), 6);
}

TEST(SampleIndex, DocumentsWithoutTokensAreRefusedWithTheNumbers) {
  const std::vector<int32_t> sizes{7, 0, 0, 9};
  try {
    SampleIndex::build(std::span(sizes), {{1, 3}, 8, 1, 1234, "valid of wiki"});
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "valid of wiki: documents 1 to 3 (of 4) hold 0 tokens, so no sample of 8 tokens can be made. "
                 "Give this set more documents.");
  }
}

TEST(EpochPlan, MoreThanTwoToThe31SamplesAndTokensAreCounted) {
  const int64_t tokens = int64_t{350'000'000'000};
  const EpochPlan plan = EpochPlan::make(tokens, 2048, 500'000'000);
  EXPECT_EQ(plan.num_epochs, 3);
  EXPECT_EQ(plan.num_samples, (3 * tokens - 1) / 2048);
  EXPECT_TRUE(plan.separate_last_epoch);  // 158,203,126 of 170,898,437 samples: 92.6 %
  EXPECT_EQ(plan.num_leading_samples, 341'796'874);
}

TEST(EpochPlan, RequestsBeyond64BitsAreRefused) {
  EXPECT_THROW(EpochPlan::make(1000, 2048, int64_t{1} << 60), UserError);
}

// --- Megatron-DeepSpeed's own arrays ---------------------------------------------------------------------------

const std::vector<int32_t>& owt_sizes() {
  static const std::vector<int32_t> sizes = [] {
    const std::string file = test::read_bytes(test::find_data("owt_text_document.idx"));
    int64_t count = 0;
    std::memcpy(&count, file.data() + 18, sizeof count);
    std::vector<int32_t> values(static_cast<size_t>(count));
    std::memcpy(values.data(), file.data() + 34, values.size() * sizeof(int32_t));
    return values;
  }();
  return sizes;
}

Json read_oracle(const std::string& name) {
  return Json::parse(test::read_bytes(test::find_data("megatron-oracle/gpt_index/" + name)));
}

std::string sha256_of_npy(const IndexArray& array) {
  const std::filesystem::path path = testing::TempDir() + "espalier_sample_index_test.npy";
  EXPECT_EQ(array.write_npy(path), hash64(array.data(), array.size_bytes()));
  const std::string sum = hex_digits(sha256(test::read_bytes(path)));
  std::filesystem::remove(path);
  return sum;
}

TEST(SampleIndexOracle, ArraysOfEveryCaseEqualMegatronsFiles) {
  const char* names[] = {"train", "valid", "test"};
  int compared = 0;
  for (const Json& test_case : read_oracle("cases.json")) {
    const auto ranges = split_documents(parse_split(test_case["split"]), 1000);
    for (int set = 0; set < 3; ++set) {
      if (!test_case["sets"].contains(names[set]) || test_case["sets"][names[set]].is_null()) {
        EXPECT_EQ(ranges[set].size(), 0);
        continue;
      }
      const Json& expected = test_case["sets"][names[set]];
      SCOPED_TRACE(test_case["case"].get<std::string>() + " " + names[set]);
      const SampleIndex index = SampleIndex::build(
          std::span(owt_sizes()),
          {ranges[set], test_case["seq_length"], test_case["num_samples"][set], test_case["seed"], names[set]});
      EXPECT_EQ(index.size(), expected["length"]);
      EXPECT_EQ(ranges[set].size(), expected["documents"]);
      EXPECT_EQ(index.plan().num_epochs, expected["epochs"]);
      EXPECT_EQ(index.plan().separate_last_epoch, expected["separate_last_epoch"]);
      EXPECT_EQ(sha256_of_npy(index.documents()), expected["sha256_of_cache_files"]["doc_idx"]);
      EXPECT_EQ(sha256_of_npy(index.starts()), expected["sha256_of_cache_files"]["sample_idx"]);
      EXPECT_EQ(sha256_of_npy(index.order()), expected["sha256_of_cache_files"]["shuffle_idx"]);
      ++compared;
    }
  }
  EXPECT_EQ(compared, 13);
}

TEST(SampleIndexOracle, ArraysEqualNumberByNumber) {
  const SampleIndex index = SampleIndex::build(std::span(owt_sizes()), {{0, 1000}, 2048, 700, 77, "train"});
  const std::string folder = "megatron-oracle/gpt_index/seq2048_seed77_all_train/train_";
  EXPECT_EQ(array_values(index.documents()), test::read_npy(test::find_data(folder + "doc_idx.npy")).as<int64_t>());
  EXPECT_EQ(array_values(index.starts()), test::read_npy(test::find_data(folder + "sample_idx.npy")).as<int64_t>());
  EXPECT_EQ(array_values(index.order()), test::read_npy(test::find_data(folder + "shuffle_idx.npy")).as<int64_t>());
}

// Single calls at the edges. Those that upstream's assertion refuses must give the samples asked for.
TEST(SampleIndexOracle, ProbesAtTheEdges) {
  for (const Json& probe : read_oracle("probes.json")) {
    SCOPED_TRACE(probe.dump());
    const SampleIndex index =
        SampleIndex::build(std::span(owt_sizes()), {{probe["documents"][0], probe["documents"][1]},
                                                    probe["seq_length"],
                                                    probe["num_samples"],
                                                    probe["seed"],
                                                    "probe"});
    EXPECT_EQ(index.plan().tokens_per_epoch, probe["tokens_per_epoch"]);
    EXPECT_GE(index.size(), probe["num_samples"]);
    if (probe["result"] != "ok") continue;
    EXPECT_EQ(index.size(), probe["samples"]);
    EXPECT_EQ(index.documents().size(), probe["doc_idx_length"]);
    EXPECT_EQ(index.plan().separate_last_epoch, probe["separate_last_epoch"]);
    EXPECT_EQ(sha256_of(index.documents()), probe["sha256"]["doc_idx"]);
    EXPECT_EQ(sha256_of(index.starts()), probe["sha256"]["sample_idx"]);
    EXPECT_EQ(sha256_of(index.order()), probe["sha256"]["shuffle_idx"]);
  }
}

// Two ranges of one file, blended: the arrays of both, and of the blend.
TEST(SampleIndexOracle, BlendedGroupOfTwoRanges) {
  const std::string folder = "megatron-oracle/gpt_index/group_valid_three/";
  const auto expected = [&](const std::string& name) {
    return test::read_npy(test::find_data(folder + name + ".npy")).as<int64_t>();
  };
  const std::vector<double> weights = normalized_weights(std::vector<double>{0.7, 0.3});
  const std::vector<int64_t> counts = samples_per_set(weights, 48);
  const FractionRange ranges[] = {{0.949, 0.98}, {0.98, 1}};
  std::vector<int64_t> lengths;
  for (int set = 0; set < 2; ++set) {
    const SampleIndex index = SampleIndex::build(
        std::span(owt_sizes()), {documents_in_range(ranges[set], 1000), 64, counts[set], 77, "valid_three"});
    const std::string name = concat("set", set, "_");
    EXPECT_EQ(array_values(index.documents()), expected(name + "doc_idx"));
    EXPECT_EQ(array_values(index.starts()), expected(name + "sample_idx"));
    EXPECT_EQ(array_values(index.order()), expected(name + "shuffle_idx"));
    lengths.push_back(index.size());
  }
  const std::vector<int64_t> sets = expected("dataset_index"), samples = expected("dataset_sample_index");
  const int64_t total = lengths[0] + lengths[1];
  EXPECT_EQ(static_cast<int64_t>(sets.size()), total);
  const BlendIndex endless = BlendIndex::build(weights, std::vector<int64_t>{total, total});
  for (int64_t at = 0; at < total; ++at)
    ASSERT_EQ(endless.place(at), (BlendIndex::Place{sets[at], samples[at]})) << "sample " << at;

  // Upstream promises all of these and fails at the first that is beyond its set.
  int64_t usable = 0;
  while (usable < total && samples[usable] < lengths[sets[usable]]) ++usable;
  EXPECT_EQ(BlendIndex::build(weights, lengths).size(), usable);
}

TEST(SampleIndex, RefusesANegativeSize) {
  const std::vector<int32_t> sizes = {30, -7, 20};
  try {
    SampleIndex::build(std::span<const int32_t>(sizes),
                       {.documents = {0, 3}, .sequence_length = 4, .num_samples = 2, .name = "train"});
    FAIL() << "no UserError was thrown";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "train: size of sequence 1: expected 0 or more, found -7. The .idx is damaged; 'espalier data check' "
                 "reads all of it.");
  }
}

}  // namespace
}  // namespace espalier::data
