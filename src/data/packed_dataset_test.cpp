#include "data/packed_dataset.h"

#include <gtest/gtest.h>

#include <set>

#include "data/internal/test_folder.h"

namespace espalier::data {
namespace packed_dataset_test {

using test_files::error_of;
using test_files::TestFolder;
using Documents = std::vector<std::vector<int32_t>>;
using Ids = std::vector<int64_t>;

void write_store(const std::string& prefix, const Documents& documents) {
  TokenStoreWriter writer(prefix, TokenType::kInt32);
  for (const std::vector<int32_t>& ids : documents) {
    writer.add_sequence(ids);
    writer.end_document();
  }
  writer.finish();
}

std::string write_pairs(const TestFolder& folder, const Documents& inputs, const Documents& targets,
                        const std::string& name = "p3") {
  write_store(folder / name + kInputsEnding, inputs);
  write_store(folder / name + kTargetsEnding, targets);
  return folder / name;
}

DataSetOptions options_of(const std::vector<std::string>& data_path, int64_t sequence_length, int64_t num_samples) {
  DataSetOptions options;
  options.data_path = data_path;
  options.split = "1";
  options.sequence_length = sequence_length;
  options.train_samples = num_samples;
  options.endings = {kInputsEnding, kTargetsEnding};
  return options;
}

// Two pairs of 3 tokens in rows of 8: whatever the order, each row holds two of them and two places of padding.
TEST(PackedDataset, LaysPairsOneAfterAnotherAndMarksThem) {
  TestFolder folder;
  const std::string prefix = write_pairs(folder, {{6, 7}, {6, 7}}, {{8}, {8}});
  const PackedDataSets sets = PackedDataSets::open(options_of({prefix}, 7, 2), 9);
  ASSERT_GT(sets.train->size(), 2);
  EXPECT_EQ(sets.train->field("decoder_segment_ids"), PackedDataset::kSegments);
  EXPECT_EQ(sets.train->prefixes(), (std::vector<std::string>{prefix + kInputsEnding, prefix + kTargetsEnding}));
  Sample sample;
  sets.train->read(0, sample);
  EXPECT_EQ(sample.arrays[PackedDataset::kIds], (Ids{6, 7, 8, 6, 7, 8, 9, 9}));
  EXPECT_EQ(sample.arrays[PackedDataset::kSegments], (Ids{1, 1, 1, 2, 2, 2, 0, 0}));
  EXPECT_EQ(sample.arrays[PackedDataset::kIsInput], (Ids{1, 1, 0, 1, 1, 0, 0, 0}));
}

TEST(PackedDataset, LeavesOutWhatIsTooLongAndReadsItsOwnRange) {
  TestFolder folder;
  const std::string prefix = write_pairs(folder, {{1}, {2}, {3, 3, 3, 3}, {4}, {5, 5}}, {{1}, {2, 2}, {3}, {4}, {5}});
  DataSetOptions options = options_of({}, 3, 9);
  options.split.clear();
  options.train_weighted_split_paths = {"train: 1 0.2:1 " + prefix};
  options.valid_weighted_split_paths = {"seen: 1 0:0.2 " + prefix};
  options.valid_samples = 1;
  const PackedDataSets sets = PackedDataSets::open(options, 0);
  EXPECT_EQ(sets.train->parts()[0].index.num_too_long(), 1);
  EXPECT_NE(sets.train->description().find("4 pairs of " + prefix + ", less 1 that are too long"), std::string::npos)
      << sets.train->description();
  Sample sample;
  std::set<int64_t> found;
  for (int64_t row = 0; row < sets.train->size(); ++row) {
    sets.train->read(row, sample);
    found.insert(sample.arrays[0].begin(), sample.arrays[0].end());
  }
  EXPECT_EQ(found, (std::set<int64_t>{0, 2, 4, 5}));
  sets.valid.at(0)->read(0, sample);
  EXPECT_EQ(sample.arrays[0], (Ids{1, 1, 1, 1}));
}

TEST(PackedDataset, BlendsByWeightAndNamesTheSources) {
  TestFolder folder;
  const std::string en = write_pairs(folder, {{1}, {1}}, {{2}, {2}}, "en");
  const std::string fr = write_pairs(folder, {{3}, {3}}, {{4}, {4}}, "fr");
  const PackedDataSets sets = PackedDataSets::open(options_of({"3", en, "1", fr}, 1, 40), 0);
  EXPECT_EQ(sets.train->source_names(), (std::vector<std::string>{"en", "fr"}));
  Sample sample;
  int64_t of_en = 0;
  for (int64_t row = 0; row < 40; ++row) {
    sets.train->read(row, sample);
    EXPECT_EQ(sample.arrays[0], sample.source == 0 ? (Ids{1, 2}) : (Ids{3, 4}));
    of_en += sample.source == 0;
  }
  EXPECT_EQ(of_en, 30);
}

// A run that is made longer reads the same as far as it has come; other files or another seed are reported.
TEST(PackedDataset, FingerprintTellsOtherRowsAndNotALongerRun) {
  TestFolder folder;
  const Documents inputs = {{1}, {2}, {3}, {4}, {5}};
  const std::string prefix = write_pairs(folder, inputs, inputs), other = write_pairs(folder, inputs, inputs, "same");
  const std::string changed = write_pairs(folder, inputs, {{1}, {2}, {3}, {4}, {6}}, "changed");
  const auto fingerprint = [&](const std::string& of, int64_t num_samples, int64_t seed) {
    DataSetOptions options = options_of({of}, 5, num_samples);
    options.seed = seed;
    return PackedDataSets::open(options, 0).train->fingerprint("in sequence");
  };
  const OrderFingerprint saved = parse_order(to_text(fingerprint(prefix, 3, 7)));
  EXPECT_EQ(order_changes(saved, fingerprint(prefix, 300, 7)), std::vector<std::string>{});
  EXPECT_EQ(order_changes(saved, fingerprint(other, 3, 7)), std::vector<std::string>{});
  EXPECT_EQ(order_changes(saved, fingerprint(prefix, 3, 8)), std::vector<std::string>{"the seed was 7 and is 8"});
  EXPECT_EQ(order_changes(saved, fingerprint(changed, 3, 7)).size(), 1u);
}

TEST(PackedDataset, RefusesWhatAreNoPairs) {
  TestFolder folder;
  const auto problem_of = [](const std::string& prefix) {
    Problems problems;
    check_pairs(plan_data(options_of({prefix}, 7, 2), problems), 7, problems);
    EXPECT_EQ(problems.messages().size(), 1u);
    const std::string thrown = error_of([&] { PackedDataSets::open(options_of({prefix}, 7, 2), 0); });
    // The set is named when it is opened, the files before.
    EXPECT_TRUE(thrown.ends_with(problems.messages().at(0).substr(problems.messages()[0].find(": ")))) << thrown;
    return problems.messages().at(0);
  };
  std::string prefix = write_pairs(folder, {{1}, {2}}, {{1}});
  EXPECT_EQ(
      problem_of(prefix),
      concat("'", prefix, "_inputs_document' has 2 documents, '", prefix, "_targets_document' has 1: they are not ",
             "pairs. A record with an empty text gives a document for one key only; leave such records out."));
  prefix = write_pairs(folder, {{1}, {2}}, {{1}, {}});
  EXPECT_EQ(problem_of(prefix),
            prefix +
                ": pair 1: expected at least one token of input and of target, found 1 and 0. Leave such records "
                "out.");
  prefix = write_pairs(folder, {{}, {2}}, {{1}, {2}});
  EXPECT_EQ(problem_of(prefix),
            prefix +
                ": pair 0: expected at least one token of input and of target, found 0 and 1. Leave such records "
                "out.");
  prefix = write_pairs(folder, {{1, 2, 3, 4, 5, 6, 7}}, {{1, 2}});
  EXPECT_EQ(problem_of(prefix),
            prefix + ": none of the 1 pairs 0 to 1 fits into 8 tokens. Give a longer --seq-length.");
}

TEST(PackedDataset, NamesTheFileThatIsMissing) {
  TestFolder folder;
  write_store(folder / "half" + kInputsEnding, {{1}});
  Problems problems;
  plan_data(options_of({folder / "half"}, 7, 2), problems);
  ASSERT_EQ(problems.messages().size(), 1u);
  EXPECT_NE(problems.messages()[0].find("half_targets_document.idx'"), std::string::npos) << problems.messages()[0];
  EXPECT_NE(problems.messages()[0].find("A data set is two here, PREFIX_inputs_document and PREFIX_targets_document"),
            std::string::npos)
      << problems.messages()[0];
}

}  // namespace packed_dataset_test
}  // namespace espalier::data
