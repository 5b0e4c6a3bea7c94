#include "data/packed_dataset.h"

#include <gtest/gtest.h>

#include "data/internal/test_folder.h"

namespace espalier::data {
namespace {

using test_files::error_of;
using test_files::TestFolder;

void write_store(const std::string& prefix, const std::vector<std::vector<int32_t>>& documents) {
  TokenStoreWriter writer(prefix, TokenType::kInt32);
  for (const std::vector<int32_t>& ids : documents) {
    writer.add_sequence(ids);
    writer.end_document();
  }
  writer.finish();
}

std::string write_pairs(const TestFolder& folder, const std::vector<std::vector<int32_t>>& inputs,
                        const std::vector<std::vector<int32_t>>& targets) {
  write_store(folder / "p3_inputs_document", inputs);
  write_store(folder / "p3_targets_document", targets);
  return folder / "p3";
}

// Two pairs of 3 tokens in rows of 8: whatever the order, each row holds two of them and two places of padding.
TEST(PackedDataset, LaysPairsOneAfterAnotherAndMarksThem) {
  TestFolder folder;
  const std::string prefix = write_pairs(folder, {{6, 7}, {6, 7}}, {{8}, {8}});
  const PackedDataset dataset(prefix, {.sequence_length = 7, .num_samples = 2, .pad_id = 9});
  ASSERT_GT(dataset.size(), 2);
  PackedSample sample;
  dataset.sample(0, sample);
  EXPECT_EQ(sample.ids, (std::vector<int64_t>{6, 7, 8, 6, 7, 8, 9, 9}));
  EXPECT_EQ(sample.segments, (std::vector<int64_t>{1, 1, 1, 2, 2, 2, 0, 0}));
  EXPECT_EQ(sample.positions, (std::vector<int64_t>{0, 1, 2, 0, 1, 2, 0, 0}));
  EXPECT_EQ(sample.is_input, (std::vector<uint8_t>{1, 1, 0, 1, 1, 0, 0, 0}));
  // The label 8 counts at both places, and so does the first padding, which upstream learns as the end of a row.
  EXPECT_EQ(sample.loss_mask(9), (std::vector<uint8_t>{0, 1, 0, 0, 1, 1, 0}));
}

TEST(PackedDataset, LeavesOutWhatIsTooLongAndReadsItsOwnRange) {
  TestFolder folder;
  const std::string prefix = write_pairs(folder, {{1}, {2}, {3, 3, 3, 3}, {4}, {5, 5}}, {{1}, {2, 2}, {3}, {4}, {5}});
  const PackedDataset dataset(prefix, {.range = {0.2, 1}, .sequence_length = 3, .num_samples = 9});
  EXPECT_EQ(dataset.index().num_too_long(), 1);
  PackedSample sample;
  for (int64_t row = 0; row < dataset.size(); ++row) {
    dataset.sample(row, sample);
    for (const int64_t id : sample.ids) EXPECT_TRUE(id == 0 || id == 2 || id == 4 || id == 5) << id;
  }
}

TEST(PackedDataset, RefusesWhatAreNoPairs) {
  TestFolder folder;
  const PackedOptions options{.sequence_length = 7, .num_samples = 2};
  std::string prefix = write_pairs(folder, {{1}, {2}}, {{1}});
  EXPECT_EQ(
      error_of([&] { PackedDataset(prefix, options); }),
      concat("'", prefix, "_inputs_document' has 2 documents, '", prefix, "_targets_document' has 1: they are no ",
             "pairs. A record with an empty text gives a document for one key only; leave such records out."));
  prefix = write_pairs(folder, {{1}, {2}}, {{1}, {}});
  EXPECT_EQ(error_of([&] { PackedDataset(prefix, options); }),
            prefix +
                ": pair 1: expected at least one token of input and of target, found 1 and 0. Leave such records "
                "out.");
  prefix = write_pairs(folder, {{1, 2, 3, 4, 5, 6, 7}}, {{1, 2}});
  EXPECT_EQ(error_of([&] { PackedDataset(prefix, options); }),
            prefix + ": none of the 1 pairs 0 to 1 fits into 8 tokens. Give a longer --seq-length.");
}

}  // namespace
}  // namespace espalier::data
