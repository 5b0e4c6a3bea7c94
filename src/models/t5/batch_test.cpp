// The arrays of T5's samples as a batch, against arrays written by hand.
#include "models/t5/batch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace espalier::models {
namespace t5_batch_test {

constexpr int64_t kPad = 9;
constexpr int32_t kNone = -1;

using Rows = std::vector<std::vector<int64_t>>;

Rows rows_of(const at::Tensor& tensor) {
  Rows rows;
  const at::Tensor values = tensor.to(at::kLong).contiguous();
  for (int64_t row = 0; row < values.size(0); ++row) {
    const int64_t* const begin = values.data_ptr<int64_t>() + row * values.size(1);
    rows.emplace_back(begin, begin + values.size(1));
  }
  return rows;
}

// Encoder of 5 tokens, decoder of 3. The first row is full, the second has padding in both, the third has an encoder of
// one token; PAD is in the middle of the second's text, where it is a token like any other.
std::vector<SampleRow> rows_by_hand() {
  return {{70, {{{1, 2, 3, 4, 5}, {6, 7, 8}, {7, 8, 2}, {1, 1, 1}, {0}}, 0}},
          {71, {{{1, 9, 3, 9, 9}, {6, 9, 9}, {4, -1, -1}, {1, 0, 0}, {1}}, 2}},
          {3'000'000'001, {{{8, 9, 9, 9, 9}, {6, 1, 9}, {1, 2, -1}, {1, 1, 0}, {0}}, 1}}};
}

TEST(T5Batch, HasTheArraysOfItsSamples) {
  const tensor::Batch batch = make_t5_batch(rows_by_hand(), kPad);
  EXPECT_EQ(rows_of(batch.extra.at(kEncoderIds)), (Rows{{1, 2, 3, 4, 5}, {1, 9, 3, 9, 9}, {8, 9, 9, 9, 9}}));
  EXPECT_EQ(rows_of(batch.extra.at(kEncoderPositions)), Rows(3, {0, 1, 2, 3, 4}));
  EXPECT_EQ(rows_of(batch.ids), (Rows{{6, 7, 8}, {6, 9, 9}, {6, 1, 9}}));
  EXPECT_EQ(rows_of(batch.positions), Rows(3, {0, 1, 2}));
  EXPECT_EQ(rows_of(batch.labels), (Rows{{7, 8, 2}, {4, 0, 0}, {1, 2, 0}}))
      << "an id of the vocabulary also where none";
  EXPECT_EQ(rows_of(batch.loss_mask), (Rows{{1, 1, 1}, {1, 0, 0}, {1, 1, 0}}));
  EXPECT_EQ(batch.loss_mask.scalar_type(), at::kFloat);
  EXPECT_EQ(batch.sample_numbers, (std::vector<int64_t>{70, 71, 3'000'000'001}));
  EXPECT_EQ(batch.sources, (std::vector<int32_t>{0, 2, 1}));
}

TEST(T5Batch, LastKeysLeavePaddingOutOnEitherSide) {
  const tensor::Batch batch = make_t5_batch(rows_by_hand(), kPad);
  const at::Tensor &of_encoder = batch.extra.at(kEncoderLastKeys), &across = batch.extra.at(kCrossLastKeys);
  EXPECT_EQ(of_encoder.scalar_type(), at::kInt);
  EXPECT_EQ(across.scalar_type(), at::kInt);
  EXPECT_EQ(rows_of(of_encoder), (Rows{{4, 4, 4, 4, 4}, {2, 2, 2, kNone, kNone}, {0, kNone, kNone, kNone, kNone}}));
  EXPECT_EQ(rows_of(across), (Rows{{4, 4, 4}, {2, kNone, kNone}, {0, 0, kNone}}));
}

TEST(T5Batch, CountsWhatItsLossIsAMeanOver) {
  using Targets = std::vector<std::pair<std::string, double>>;
  EXPECT_EQ(make_t5_batch(rows_by_hand(), kPad).targets, (Targets{{"lm loss", 6}}));
}

// A sample of nothing but padding: no key is seen, and no query sees one.
TEST(T5Batch, AnEncoderOfPaddingAloneIsNotSeen) {
  const tensor::Batch batch = make_t5_batch({{0, {{{9, 9}, {6, 1}, {1, 2}, {1, 1}, {0}}, 0}}}, kPad);
  EXPECT_EQ(rows_of(batch.extra.at(kEncoderLastKeys)), (Rows{{kNone, kNone}}));
  EXPECT_EQ(rows_of(batch.extra.at(kCrossLastKeys)), (Rows{{kNone, kNone}}));
}

TEST(T5Batch, RowsOfDifferentLengthsAreAnError) {
  std::vector<SampleRow> rows = rows_by_hand();
  rows[1].sample.arrays[0].push_back(kPad);
  EXPECT_THROW(make_t5_batch(rows, kPad), InternalError);
  EXPECT_THROW(make_t5_batch({}, kPad), InternalError);
}

}  // namespace t5_batch_test
}  // namespace espalier::models
