// A T5 in the engine: its scores are those of training's forward pass, and nothing but a request itself decides its
// bits.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "infer/engine/decoder_model.h"
#include "infer/engine/engine.h"
#include "infer/small_t5_test.h"
#include "models/t5/batch.h"

namespace espalier::infer {
namespace encoder_model_test {

using families::T5Positions;
using Ids = std::vector<int32_t>;

constexpr int64_t kVocabulary = SmallT5::kVocabulary, kLongest = 40, kPageTokens = 8;
constexpr int32_t kBegin = 3;

// Twelve requests, two of which share what the encoder reads. Texts of up to 15 tokens, some with a beginning to score.
std::vector<Request> requests() {
  std::vector<Request> all;
  for (int32_t i = 0; i < 12; ++i) {
    Request request;
    for (int32_t at = 0; at < 1 + 9 * (i % 5) % 37; ++at)
      request.encoder_ids.push_back((at * 7 + i % 11) % kVocabulary);
    request.prompt_ids = {kBegin};
    for (int32_t at = 0; at < i % 4; ++at) request.prompt_ids.push_back((at * 5 + i) % kVocabulary);
    if (i % 4 > 0) request.score_from = 1;
    request.max_tokens = i == 9 ? 0 : 4 + i % 9;
    request.num_alternatives = 2;
    request.random_stream = static_cast<uint32_t>(i);
    all.push_back(request);
  }
  return all;
}

using Scores = std::vector<std::vector<TokenScore>>;

Scores answers_of(const SmallT5& t5, at::ScalarType type, const std::vector<Request>& asked, int64_t pages,
                  EngineCounters* counters = nullptr) {
  DecoderModel batches(t5.model, {type}, {.page_tokens = kPageTokens, .num_pages = pages, .max_positions = kLongest});
  Engine engine(batches, nullptr, {});
  Scores answers(asked.size());
  for (size_t i = 0; i < asked.size(); ++i)
    engine.submit(asked[i], [&answers, i](const Event& event) {
      EXPECT_NE(event.finish ? event.finish->reason : FinishReason::kStop, FinishReason::kFailed)
          << event.finish->message;
      for (const auto* scores : {&event.prompt_scores, &event.tokens})
        answers[i].insert(answers[i].end(), scores->begin(), scores->end());
    });
  while (engine.step()) {
  }
  if (counters != nullptr) *counters = engine.counters();
  return answers;
}

// -log p of the first 1, 2, ... of `answer` after kBegin together, each by one pass of training's forward.
std::vector<double> losses_of(SmallT5& t5, const Ids& prompt, const Ids& answer) {
  constexpr int64_t kPad = 0;
  const size_t length = answer.size();
  std::vector<int64_t> encoder(prompt.begin(), prompt.end()), decoder(length, kPad), labels(length, -1),
      mask(length, 0);
  encoder.resize(static_cast<size_t>(kLongest), kPad);
  std::vector<double> losses;
  for (size_t place = 0; place < length; ++place) {  // what comes after it is padding
    decoder[place] = place == 0 ? kBegin : answer[place - 1];
    labels[place] = answer[place];
    mask[place] = 1;
    const tensor::Batch batch = models::make_t5_batch({{0, {{encoder, decoder, labels, mask, {0}}, 0}}}, kPad);
    const auto loss = t5.model.forward({.batch = &batch, .tensors = {}, .training = false}).loss;
    losses.push_back(loss.at(0).row_sums[0].item<double>());
  }
  return losses;
}

TEST(EncoderModel, ScoresAreThoseOfOnePassOfTraining) {
  const at::NoGradGuard no_grad;
  for (const T5Positions positions : {T5Positions::kLearned, T5Positions::kRelative}) {
    SmallT5 t5(positions, kLongest);
    const std::vector<Request> asked = requests();
    const Scores answers = answers_of(t5, at::kFloat, asked, 60);
    for (size_t i = 0; i < asked.size(); ++i) {
      Ids answer;
      for (const TokenScore& score : answers[i]) answer.push_back(score.id);
      const size_t scored = asked[i].prompt_ids.size() - 1;
      ASSERT_EQ(answer.size(), scored + static_cast<size_t>(asked[i].max_tokens)) << i;
      for (size_t at = 0; at < scored; ++at) EXPECT_EQ(answer[at], asked[i].prompt_ids[at + 1]);
      if (asked[i].encoder_ids.back() == 0) continue;  // training would take it for padding
      const std::vector<double> losses = losses_of(t5, asked[i].encoder_ids, answer);
      double sum = 0;
      for (size_t at = 0; at < answer.size(); ++at) {
        sum += answers[i][at].log_probability;
        EXPECT_NEAR(sum, -losses[at], 2e-5 * static_cast<double>(at + 1))
            << "request " << i << ", place " << at << ", positions " << static_cast<int>(positions);
      }
    }
  }
}

TEST(EncoderModel, ARequestsBitsDependOnItAlone) {
  const int threads = at::get_num_threads();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (const T5Positions positions : {T5Positions::kLearned, T5Positions::kRelative}) {
      const SmallT5 t5(positions, kLongest, type);
      const std::vector<Request> asked = requests();
      EngineCounters counters;
      const Scores together = answers_of(t5, type, asked, 8, &counters);  // texts have to give way
      EXPECT_GT(counters.num_preemptions, 0);
      EXPECT_EQ(counters.num_prefix_tokens, 0) << "texts after different prompts share nothing";
      for (size_t i = 0; i < asked.size(); ++i) {
        at::set_num_threads(i % 2 == 0 ? 1 : 3);
        EXPECT_EQ(answers_of(t5, type, {asked[i]}, 60)[0], together[i]) << i;
      }
      at::set_num_threads(threads);
    }
}

TEST(EncoderModel, WhatWasReadGivesItsPagesBack) {
  const SmallT5 t5(T5Positions::kRelative, kLongest);
  DecoderModel batches(t5.model, {at::kFloat}, {.page_tokens = kPageTokens, .num_pages = 4});
  EXPECT_TRUE(batches.shape().has_encoder);
  const Ids first = {5, 6, 7}, second(30, 9), text = {kBegin, 8};
  const Ids pages = {2};
  const auto logits_after = [&](int32_t encoded) {
    std::vector<float> logits(static_cast<size_t>(2 * kVocabulary));
    const TokenRun run{.ids = text, .pages = pages, .num_logits = 2, .encoded = encoded};
    batches.forward({&run, 1}, logits.data());
    return logits;
  };
  const int32_t kept = batches.encode(first);
  const std::vector<float> expected = logits_after(kept);
  for (int turn = 0; turn < 20; ++turn) {  // pages of others come, grow, and go
    const int32_t one = batches.encode(second), other = batches.encode(first);
    EXPECT_NE(logits_after(one), expected);
    EXPECT_EQ(logits_after(other), expected);
    batches.release(one);
    EXPECT_EQ(logits_after(kept), expected);
    batches.release(other);
  }
  EXPECT_THROW(batches.release(kept + 1), InternalError);
}

}  // namespace encoder_model_test
}  // namespace espalier::infer
