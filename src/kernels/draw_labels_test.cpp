// Draws against their definition, one element at a time, over shards and parts of a sequence; and how often each row is
// drawn against the softmax.
#include "kernels/draw_labels.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/cpu_isa.h"
#include "kernels/reference_test.h"

namespace espalier::kernels {
namespace draw_labels_test {

const tensor::PhiloxKey kKey = tensor::philox_key(1234, "labels");
const std::vector<int64_t> kSamples = {0, 7, (int64_t{3} << 32) + 5};

// The definition of draw_labels.h: the row with the largest logit and noise.
int64_t drawn_row(const at::Tensor& logits, int64_t position, int64_t sample) {
  int64_t best = 0;
  double best_score = -std::numeric_limits<double>::infinity();
  for (int64_t row = 0; row < logits.size(0); ++row) {
    const tensor::PhiloxBlock bits = tensor::philox4x32(
        kKey, {{static_cast<uint32_t>(row / 4), static_cast<uint32_t>(position),
                static_cast<uint32_t>((sample >> 32) * 65536), static_cast<uint32_t>(sample & 0xFFFFFFFF)}});
    const double u = (bits.word[row % 4] + 0.5) / 4294967296.0;
    const double score = logits[row].item<double>() - std::log(-std::log(u));
    if (score > best_score) best = row, best_score = score;
  }
  return best;
}

// [s, b]
at::Tensor drawn_rows(const at::Tensor& logits) {
  at::Tensor rows = at::empty({logits.size(0), logits.size(1)}, at::kLong);
  for (int64_t position = 0; position < logits.size(0); ++position)
    for (int64_t b = 0; b < logits.size(1); ++b)
      rows[position][b] = drawn_row(logits[position][b], position, kSamples[static_cast<size_t>(b)]);
  return rows;
}

TEST(DrawLabels, FollowTheirDefinitionOnEveryInstructionSet) {
  for (const int64_t count : {1, 7, 33, 333}) {
    const at::Tensor logits = reference::random({9, 3, count}, at::kFloat, count, 3), wanted = drawn_rows(logits);
    for (const CpuIsa isa : reference::instruction_sets()) {
      const ForceCpuIsa force(isa);
      EXPECT_TRUE(at::equal(draw_labels(logits, 0, {.key = kKey, .sample_numbers = &kSamples}).rows, wanted)) << count;
    }
  }
}

// Shards that begin anywhere, one of them empty; and a part of the sequence.
TEST(DrawLabels, OfShardsAndPartsAreThoseOfTheWhole) {
  const at::Tensor logits = reference::random({9, 3, 333}, at::kFloat, 5, 3), wanted = drawn_rows(logits);
  at::Tensor rows = at::zeros({9, 3}, at::kLong), scores = at::full({9, 3}, -INFINITY, at::kDouble);
  const std::vector<int64_t> bounds = {0, 1, 70, 70, 203, 333};
  for (size_t shard = 0; shard + 1 < bounds.size(); ++shard) {
    const at::Tensor part = logits.narrow(2, bounds[shard], bounds[shard + 1] - bounds[shard]).contiguous();
    const DrawnLabels drawn = draw_labels(part, bounds[shard], {.key = kKey, .sample_numbers = &kSamples});
    rows = at::where(drawn.scores > scores, drawn.rows, rows);
    scores = at::max(scores, drawn.scores);
  }
  EXPECT_TRUE(at::equal(rows, wanted));
  const at::Tensor later = logits.narrow(0, 4, 5).contiguous();
  EXPECT_TRUE(at::equal(draw_labels(later, 0, {.key = kKey, .sample_numbers = &kSamples, .first_position = 4}).rows,
                        wanted.narrow(0, 4, 5)));
}

// 40,000 draws of one distribution: the sum of (found - expected)^2 / expected over 12 rows has a mean of 11 and a
// standard deviation of 4.7.
TEST(DrawLabels, AreAsFrequentAsTheSoftmaxSays) {
  const at::Tensor one = reference::random({12}, at::kFloat, 3, 1.5), logits = one.expand({40'000, 1, 12}).contiguous();
  const std::vector<int64_t> sample = {17};
  const at::Tensor rows = draw_labels(logits, 0, {.key = kKey, .sample_numbers = &sample}).rows.flatten();
  const at::Tensor found = at::bincount(rows, {}, 12).to(at::kDouble), expected = 40'000 * at::softmax(one, 0);
  EXPECT_LT(((found - expected).square() / expected).sum().item<double>(), 35);
}

TEST(DrawLabels, OfLogitsThatAreNoNumbersAreRows) {
  const at::Tensor logits = at::full({2, 3, 5}, NAN, at::kFloat);
  const DrawnLabels drawn = draw_labels(logits, 40, {.key = kKey, .sample_numbers = &kSamples});
  EXPECT_TRUE((drawn.rows == 40).all().item<bool>());
}

}  // namespace draw_labels_test
}  // namespace espalier::kernels
