#include "data/store_report.h"

#include <gtest/gtest.h>

#include "data/internal/test_folder.h"

namespace espalier::data {
namespace {

using test_files::error_of;
using test_files::TestFolder;

std::string write_store(const TestFolder& folder, const std::vector<std::vector<int32_t>>& sequences) {
  TokenStoreWriter writer(folder / "set", TokenType::kInt32);
  for (const std::vector<int32_t>& ids : sequences) {
    writer.add_sequence(ids);
    writer.end_document();
  }
  writer.finish();
  return folder / "set";
}

TEST(StoreReport, CountsSizesByPowersOfTwo) {
  TestFolder folder;
  std::vector<std::vector<int32_t>> sequences;
  for (const size_t size : {1, 2, 3, 3, 8, 15, 16}) sequences.emplace_back(size, 5);
  const SizeSummary summary = summarize_sizes(TokenStore(write_store(folder, sequences)));
  EXPECT_EQ(summary.smallest, 1);
  EXPECT_EQ(summary.largest, 16);
  EXPECT_DOUBLE_EQ(summary.mean, 48.0 / 7);
  const std::vector<std::array<int64_t, 3>> expected = {{1, 1, 1}, {2, 3, 3}, {4, 7, 0}, {8, 15, 2}, {16, 31, 1}};
  ASSERT_EQ(summary.histogram.size(), expected.size());
  for (size_t bucket = 0; bucket < expected.size(); ++bucket) {
    EXPECT_EQ(summary.histogram[bucket].from, expected[bucket][0]);
    EXPECT_EQ(summary.histogram[bucket].to, expected[bucket][1]);
    EXPECT_EQ(summary.histogram[bucket].count, expected[bucket][2]);
  }
  EXPECT_TRUE(summarize_sizes(TokenStore(write_store(folder, {}))).histogram.empty());
}

TEST(StoreReport, FindsTheIdThatEndsEverySequence) {
  TestFolder folder;
  EXPECT_EQ(common_last_id(TokenStore(write_store(folder, {{1, 9}, {9}, {2, 9}, {3}})), 3), 9);
  EXPECT_EQ(common_last_id(TokenStore(folder / "set"), 4), std::nullopt);
  EXPECT_EQ(common_last_id(TokenStore(write_store(folder, {{1, 9}, {}})), 4), std::nullopt);
  EXPECT_EQ(common_last_id(TokenStore("tests/data/owt-20_text_document"), 1000), 4999);
}

}  // namespace
}  // namespace espalier::data
