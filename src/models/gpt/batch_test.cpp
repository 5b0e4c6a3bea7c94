#include "models/gpt/batch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/npy.h"

namespace espalier::models {
namespace make_batch_test {

const std::string kOracle = "tests/data/megatron-oracle/model/";

std::vector<SampleRow> oracle_rows() {
  const test::Npy text = test::read_npy(kOracle + "batch/text.npy");  // [2, 65]
  const auto ids = text.as<int64_t>();
  std::vector<SampleRow> rows;
  for (int64_t row = 0; row < text.shape[0]; ++row)
    rows.push_back({row, {{{ids.begin() + row * text.shape[1], ids.begin() + (row + 1) * text.shape[1]}}, 0}});
  return rows;
}

template <class T>
std::vector<T> flat(const at::Tensor& tensor) {
  const at::Tensor contiguous = tensor.contiguous();
  return {contiguous.data_ptr<T>(), contiguous.data_ptr<T>() + contiguous.numel()};
}

TEST(MakeBatch, MasksAndPositionsAreMegatrons) {
  data::RowRules rules;
  rules.text = {.eod = 511, .reset_position_ids = true, .reset_attention_mask = true, .eod_mask_loss = true};
  const tensor::Batch batch = make_gpt_batch(oracle_rows(), rules);
  EXPECT_EQ(flat<int64_t>(batch.positions), test::read_npy(kOracle + "reset_masks/position_ids.npy").as<int64_t>());
  EXPECT_EQ(flat<float>(batch.loss_mask), test::read_npy(kOracle + "reset_masks/loss_mask.npy").as<float>());
  const auto blocked =
      test::read_npy(kOracle + "reset_masks/attention_mask_is_blocked.npy").as<int>();  // [2, 1, 64, 64]
  const auto starts = flat<int32_t>(batch.document_starts);
  for (int64_t row = 0; row < 2; ++row)
    for (int64_t query = 0; query < 64; ++query)
      for (int64_t key = 0; key < 64; ++key) {
        const bool visible = starts[row * 64 + query] <= key && key <= query;
        ASSERT_EQ(visible, blocked[(row * 64 + query) * 64 + key] == 0) << row << " " << query << " " << key;
      }
}

TEST(MakeBatch, WithoutResetsPositionsRunThroughAndNothingIsMasked) {
  data::RowRules rules;
  rules.text.eod = 9;
  const tensor::Batch batch = make_gpt_batch({{7, {{{5, 9, 9, 3}}, 2}}}, rules);
  EXPECT_EQ(flat<int64_t>(batch.ids), (std::vector<int64_t>{5, 9, 9}));
  EXPECT_EQ(flat<int64_t>(batch.labels), (std::vector<int64_t>{9, 9, 3}));
  EXPECT_EQ(flat<int64_t>(batch.positions), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(flat<float>(batch.loss_mask), (std::vector<float>{1, 1, 1}));
  EXPECT_FALSE(batch.document_starts.defined());
  EXPECT_TRUE(batch.extra.empty());
  EXPECT_TRUE(batch.targets.empty());
  EXPECT_EQ(batch.sample_numbers, std::vector<int64_t>{7});
  EXPECT_EQ(batch.sources, std::vector<int32_t>{2});
}

TEST(MakeBatch, PairsHaveRangesOfKeysAndTheNumberOfTargetsOfEachRow) {
  data::RowRules rules;
  rules.objective = {.kind = data::Objective::Kind::kMultitask, .whole_input = true};
  const std::vector<SampleRow> rows = {{3, {{{5, 6, 7, 8, 0}, {1, 1, 1, 1, 0}, {1, 1, 0, 0, 0}}, 1}},
                                       {4, {{{5, 6, 0, 0, 0}, {1, 1, 0, 0, 0}, {1, 0, 0, 0, 0}}, 0}}};
  const tensor::Batch batch = make_gpt_batch(rows, rules);
  EXPECT_EQ(flat<float>(batch.loss_mask), (std::vector<float>{0, 1, 1, 0, 1, 0, 0, 0}));
  EXPECT_EQ(flat<int32_t>(batch.document_starts), std::vector<int32_t>(8, 0));
  EXPECT_EQ(flat<int32_t>(batch.extra.at(kLastKeys)), (std::vector<int32_t>{1, 1, 2, 3, 0, 1, -1, -1}));
  EXPECT_EQ(flat<float>(batch.extra.at(kRowTargets)), (std::vector<float>{2, 1}));
  EXPECT_EQ(batch.targets, (std::vector<std::pair<std::string, double>>{{"lm loss", 3}}));
  EXPECT_EQ(batch.sources, (std::vector<int32_t>{1, 0}));
}

}  // namespace make_batch_test
}  // namespace espalier::models
