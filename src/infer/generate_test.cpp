// Generation from a cache against a whole pass of plain formulas for every token.
#include "infer/generate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "base/format.h"
#include "models/gpt/plain_gpt_test.h"

namespace espalier::infer {
namespace generate_test {

using families::PositionEmbedding;
using models::plain_gpt::PlainGpt;
using Prompts = std::vector<std::vector<int32_t>>;

std::vector<int32_t> prompt_of(int64_t length, int32_t first) {
  std::vector<int32_t> ids;
  for (int64_t at = 0; at < length; ++at) ids.push_back(static_cast<int32_t>((first + at * 7) % 29));
  return ids;
}

// Log-probabilities of the id after `ids`, of which the first `whole` see each other.
at::Tensor plain_next(const PlainGpt& plain, const std::vector<int32_t>& ids, int64_t whole) {
  const auto s = static_cast<int64_t>(ids.size());
  at::Tensor visible = at::ones({1, s, s}, at::kBool).tril();
  visible.narrow(1, 0, whole).narrow(2, 0, whole).fill_(true);
  const at::Tensor batch = at::tensor(std::vector<int64_t>(ids.begin(), ids.end()), at::kLong).unsqueeze(0);
  const at::Tensor logits = plain.logits(batch, at::arange(s, at::kLong).unsqueeze(0), visible);
  return at::log_softmax(logits[0][s - 1].narrow(0, 0, 29), 0);
}

// Each row by itself, from the ids that were generated.
void expect_as_plain(const models::Decoder& model, const PlainGpt& plain, const Prompts& prompts, bool whole_prompt) {
  const auto results = generate(model, at::kFloat, prompts, {.tokens_to_generate = 5, .sampling = {.top_k = 1}});
  ASSERT_EQ(results.size(), prompts.size());
  for (size_t row = 0; row < prompts.size(); ++row) {
    SCOPED_TRACE(concat("row ", row, " of ", prompts[row].size(), " ids, whole ", whole_prompt));
    ASSERT_EQ(results[row].generated_ids.size(), 5u);
    std::vector<int32_t> ids = prompts[row];
    for (size_t at = 0; at < 5; ++at) {
      const at::Tensor next = plain_next(plain, ids, whole_prompt ? static_cast<int64_t>(prompts[row].size()) : 1);
      EXPECT_EQ(results[row].generated_ids[at], next.argmax().item<int64_t>()) << "token " << at;
      EXPECT_NEAR(results[row].logprobs[at], next[results[row].generated_ids[at]].item<double>(), 1e-4) << at;
      ids.push_back(results[row].generated_ids[at]);
    }
  }
}

TEST(Generate, SeesPromptsWholeOrCausallyAsAPassWithoutCacheDoes) {
  const at::NoGradGuard no_grad;
  for (const bool whole_prompt : {true, false})
    for (const auto positions : {PositionEmbedding::kAlibi, PositionEmbedding::kRotary, PositionEmbedding::kLearned}) {
      families::GptConfig config = models::plain_gpt::awkward_gpt(positions);
      config.whole_prompt = whole_prompt;
      models::plain_gpt::WholeGpt gpt(config);
      const PlainGpt plain(config, gpt.params);
      // Alone, and in a batch with prompts of other lengths, which are padded.
      expect_as_plain(gpt.model, plain, {prompt_of(7, 3)}, whole_prompt);
      expect_as_plain(gpt.model, plain, {prompt_of(1, 4), prompt_of(33, 5), prompt_of(7, 3), prompt_of(2, 8)},
                      whole_prompt);
    }
}

}  // namespace generate_test
}  // namespace espalier::infer
