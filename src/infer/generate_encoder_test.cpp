// Generation from caches against the same text in one pass of training's forward.
#include "infer/generate.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

#include "infer/small_t5_test.h"
#include "models/t5/batch.h"

namespace espalier::infer {
namespace generate_encoder_test {

constexpr int64_t kPad = 0, kNewTokens = 9, kLongest = 33;

// Of a prompt and what followed it; padded as training's samples are.
models::SampleRow as_sample(const std::vector<int32_t>& prompt, const std::vector<int32_t>& answer, int32_t begin) {
  std::vector<int64_t> encoder(kLongest, kPad), decoder(kNewTokens, kPad), labels(kNewTokens, -1), mask(kNewTokens, 0);
  std::copy(prompt.begin(), prompt.end(), encoder.begin());
  for (size_t at = 0; at < answer.size(); ++at) {
    decoder[at] = at == 0 ? begin : answer[at - 1];
    labels[at] = answer[at];
    mask[at] = 1;
  }
  return {0, {{encoder, decoder, labels, mask, {0}}, 0}};
}

TEST(GenerateWithAnEncoder, LogProbabilitiesAreThoseOfOnePass) {
  SmallT5 t5(families::T5Positions::kLearned, kLongest);
  const std::vector<std::vector<int32_t>> prompts = {{5}, std::vector<int32_t>(33), {7, 11, 13, 17, 19, 23, 29}};
  auto all = prompts;
  std::iota(all[1].begin(), all[1].end(), 20);
  const int32_t begin = 3;
  GenerateConfig config{.tokens_to_generate = kNewTokens,
                        .sampling = {.temperature = 1, .top_k = 0, .top_p = 0, .seed = 11},
                        .stop_ids = {},
                        .begin_id = begin};
  const auto generated = generate(t5.model, at::kFloat, all, config);
  std::vector<models::SampleRow> rows;
  for (size_t row = 0; row < all.size(); ++row) {
    ASSERT_EQ(generated[row].generated_ids.size(), static_cast<size_t>(kNewTokens));
    EXPECT_EQ(generated[row].prompt_ids, all[row]);
    rows.push_back(as_sample(all[row], generated[row].generated_ids, begin));
  }
  const tensor::Batch batch = models::make_t5_batch(rows, kPad);
  const at::NoGradGuard no_grad;
  const at::Tensor losses = t5.model.forward({.batch = &batch, .tensors = {}, .training = false}).loss.at(0).row_sums;
  for (size_t row = 0; row < all.size(); ++row) {
    double sum = 0;
    for (const double logprob : generated[row].logprobs) sum += logprob;
    EXPECT_NEAR(sum, -losses[static_cast<int64_t>(row)].item<double>(), 1e-4) << row;
    // The same row alone: padding of others does not reach it.
    const auto alone = generate(t5.model, at::kFloat, {all[row]}, config);
    if (row == 0) {
      EXPECT_EQ(alone[0].generated_ids, generated[0].generated_ids);
    }
  }
  EXPECT_NE(generated[0].generated_ids, generated[2].generated_ids);
}

TEST(GenerateWithAnEncoder, RefusesWhatItHasNoPositionsFor) {
  SmallT5 t5(families::T5Positions::kLearned, kLongest);
  GenerateConfig config{.tokens_to_generate = 33, .sampling = {}, .stop_ids = {}, .begin_id = 3};
  EXPECT_THROW(generate(t5.model, at::kFloat, {{5}}, config), UserError);
  config.tokens_to_generate = 2;
  EXPECT_THROW(generate(t5.model, at::kFloat, {std::vector<int32_t>(34, 5)}, config), UserError);
}

}  // namespace generate_encoder_test
}  // namespace espalier::infer
