// Ten thousand mixes of requests through small caches: each request is answered as it is alone, to the last bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "infer/engine/completion.h"
#include "infer/engine/toy_model_test.h"

namespace espalier::infer {
namespace engine_mix_test {

using Ids = std::vector<int32_t>;
using Random = std::mt19937;

int64_t below(Random& random, int64_t count) { return static_cast<int64_t>(random() % static_cast<uint64_t>(count)); }

Ids random_ids(Random& random, int64_t count) {
  Ids ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(below(random, toy::kVocabulary));
  return ids;
}

// Prompts that begin alike, as conversations do.
Ids random_prompt(Random& random) {
  Random shared(static_cast<uint32_t>(below(random, 4)));
  Ids ids = random_ids(shared, below(random, 20));
  const Ids own = random_ids(random, 1 + below(random, 9));
  ids.insert(ids.end(), own.begin(), own.end());
  return ids;
}

SamplingConfig random_sampling(Random& random) {
  SamplingConfig sampling{.seed = random() % 5};
  if (below(random, 3) == 0) sampling.temperature = static_cast<double>(below(random, 3)) * 0.7;
  if (below(random, 3) == 0) sampling.top_k = below(random, 6);
  if (below(random, 3) == 0) sampling.top_p = 0.8;
  if (sampling.top_p > 0 && below(random, 2) == 0) sampling.top_p_decay = 0.9, sampling.top_p_bound = 0.3;
  if (below(random, 3) == 0) sampling.min_p = 0.05;
  if (below(random, 4) == 0) sampling.repetition_penalty = 1.3;
  if (below(random, 4) == 0) sampling.frequency_penalty = 0.5;
  if (below(random, 4) == 0) sampling.presence_penalty = -0.4;
  if (below(random, 4) == 0) sampling.logit_bias = {{3, 2.0}, {5, -100.0}};
  return sampling;
}

Request random_request(Random& random, const BatchModelShape& shape) {
  Request request;
  request.prompt_ids = random_prompt(random);
  if (shape.has_encoder) request.encoder_ids = random_ids(random, 1 + below(random, 9));
  request.max_tokens = 1 + below(random, 12);
  if (below(random, 2) == 0) request.stop_ids = {static_cast<int32_t>(below(random, toy::kVocabulary))};
  if (below(random, 6) == 0) {
    request.beam_width = 1 + below(random, 4);
    request.n = 1 + below(random, request.beam_width);
    return request;
  }
  request.sampling = random_sampling(random);
  request.random_stream = static_cast<uint32_t>(below(random, 3));
  request.num_alternatives = below(random, 4);
  if (below(random, 3) == 0) request.stop_strings = {"ab", "the a", "\u20AC"};
  if (below(random, 5) == 0) request.stop_sequences = {{1, 2}, {3}};
  if (below(random, 5) == 0) request.banned_pairs = {{2, 4}, {4, 4}};
  if (below(random, 4) == 0) request.min_tokens = below(random, request.max_tokens + 1);
  if (below(random, 4) == 0) request.n = 1 + below(random, 3);
  if (below(random, 6) == 0) request.best_of = request.n + below(random, 3);
  const auto size = static_cast<int64_t>(request.prompt_ids.size());
  if (size > 1 && below(random, 3) == 0) {
    request.score_from = 1 + below(random, size - 1);
    if (request.n == 1 && request.best_of <= 1 && request.min_tokens == 0 && below(random, 2) == 0)
      request.max_tokens = 0;
  }
  request.stream = request.beam_width == 0 && request.best_of <= request.n && below(random, 2) == 0;
  request.priority = below(random, 4) == 0 ? 1 : 0;
  return request;
}

const toy::ToyTokenizer kTokenizer = toy::tokenizer();

// With room for everything, in one pass a prompt.
Completion alone(const Request& request, BatchModelShape shape) {
  shape.page_tokens = 64;
  shape.num_pages = 64;
  toy::ToyModel model(shape);
  Engine engine(model, &kTokenizer, {});
  const Completion completion = complete(engine, {request})[0];
  EXPECT_EQ(engine.counters().num_preemptions, 0);
  return completion;
}

struct Mixes {
  BatchModelShape shape;
  std::vector<Request> requests;
  std::vector<Completion> expected;
  EngineCounters seen;  // of all engines
  int64_t num_answers = 0;

  Mixes(const BatchModelShape& model, uint32_t seed) : shape(model) {
    Random random(seed);
    for (int number = 0; number < 400; ++number) {
      requests.push_back(random_request(random, shape));
      expected.push_back(alone(requests.back(), shape));
    }
  }
};

struct Answer {
  size_t request = 0;
  Completion completion;
  uint64_t id = 0;
  bool is_cancelled = false;
};

// Up to sixteen requests, some of them late, some of them cancelled.
void run_mix(Mixes& mixes, Engine& engine, Random& random) {
  std::vector<Answer> answers(static_cast<size_t>(1 + below(random, 16)));
  size_t num_submitted = 0;
  bool goes_on = true;
  while (goes_on || num_submitted < answers.size()) {
    const size_t until = std::min(answers.size(), num_submitted + static_cast<size_t>(below(random, 17)));
    for (; num_submitted < until; ++num_submitted) {
      Answer& answer = answers[num_submitted];
      answer.request = static_cast<size_t>(below(random, static_cast<int64_t>(mixes.requests.size())));
      answer.id = engine.submit(mixes.requests[answer.request],
                                [&answer](const Event& event) { answer.completion.add(event); });
    }
    if (num_submitted > 0 && below(random, 40) == 0) {
      Answer& answer = answers[static_cast<size_t>(below(random, static_cast<int64_t>(num_submitted)))];
      answer.is_cancelled = answer.is_cancelled || !answer.completion.is_whole;
      engine.cancel(answer.id);
    }
    goes_on = engine.step();
  }
  for (const Answer& answer : answers) {
    ASSERT_TRUE(answer.completion.is_whole);
    if (answer.is_cancelled) continue;
    ASSERT_EQ(answer.completion, mixes.expected[answer.request]) << "request " << answer.request;
    ++mixes.num_answers;
  }
  ASSERT_EQ(engine.counters().num_pages_held, 0);
}

// `num_mixes` in engines of other sizes each hundred, whose caches stay filled from mix to mix.
void run_mixes(Mixes& mixes, int num_mixes, uint32_t seed) {
  Random random(seed);
  for (int mix = 0; mix < num_mixes && !::testing::Test::HasFatalFailure();) {
    BatchModelShape shape = mixes.shape;
    shape.page_tokens = int64_t{1} << below(random, 4);
    shape.num_pages = 42 / shape.page_tokens + 1 + below(random, 120 / shape.page_tokens);
    toy::ToyModel model(shape);
    const SchedulerConfig scheduler{.max_sequences = 1 + below(random, 16),
                                    .max_step_tokens = 1 + below(random, 40),
                                    .max_prompt_tokens_beside_texts = 1 + below(random, 40),
                                    .max_logit_rows = 1 + below(random, 20)};
    Engine engine(model, &kTokenizer, {.scheduler = scheduler});
    for (int end = mix + 100; mix < end && !::testing::Test::HasFatalFailure(); ++mix) run_mix(mixes, engine, random);
    const EngineCounters counters = engine.counters();
    mixes.seen.num_prefix_tokens += counters.num_prefix_tokens;
    mixes.seen.num_preemptions += counters.num_preemptions;
    mixes.seen.num_evictions += counters.num_evictions;
    mixes.seen.num_cancelled += counters.num_cancelled;
    EXPECT_EQ(model.num_kept_encoded(), 0u);
    EXPECT_LE(model.most_rows, std::max(scheduler.max_sequences, scheduler.max_logit_rows));
    EXPECT_TRUE(shape.whole_prompt ||
                model.most_tokens <= std::max(scheduler.max_sequences, scheduler.max_step_tokens));
  }
}

constexpr BatchModelShape kCausal{.vocab_size = toy::kVocabulary};

TEST(EngineMixes, TenThousandAnswerEachRequestAsAlone) {
  Mixes mixes(kCausal, 1);
  run_mixes(mixes, 10000, 2);
  EXPECT_GT(mixes.num_answers, 70000);
  EXPECT_GT(mixes.seen.num_prefix_tokens, 100000);
  EXPECT_GT(mixes.seen.num_preemptions, 10000);
  EXPECT_GT(mixes.seen.num_evictions, 10000);
  EXPECT_GT(mixes.seen.num_cancelled, 500);
}

// Prompts that begin alike, and whose values yet differ where one may become long and the other not.
TEST(EngineMixes, ModelsThatTreatLongSequencesOtherwise) {
  Mixes mixes({.vocab_size = toy::kVocabulary, .short_positions = 20}, 8);
  run_mixes(mixes, 2000, 9);
  EXPECT_GT(mixes.seen.num_prefix_tokens, 10000);
  EXPECT_GT(mixes.seen.num_preemptions, 1000);
}

TEST(EngineMixes, PromptsThatAreSeenWhole) {
  Mixes mixes({.vocab_size = toy::kVocabulary, .whole_prompt = true}, 3);
  run_mixes(mixes, 1000, 4);
  EXPECT_GT(mixes.seen.num_preemptions, 1000);
  EXPECT_EQ(mixes.seen.num_prefix_tokens, 0);
}

TEST(EngineMixes, ModelsWithAnEncoder) {
  Mixes mixes({.vocab_size = toy::kVocabulary, .has_encoder = true}, 5);
  run_mixes(mixes, 2000, 6);
  EXPECT_GT(mixes.seen.num_preemptions, 1000);
  EXPECT_EQ(mixes.seen.num_prefix_tokens, 0);
}

// Whether nothing but the logits decides what is drawn.
bool is_plain_greedy(const Request& request) {
  const SamplingConfig& sampling = request.sampling;
  return is_greedy(sampling) && sampling.logit_bias.empty() && sampling.repetition_penalty == 1 &&
         sampling.frequency_penalty == 0 && sampling.presence_penalty == 0 && request.min_tokens == 0 &&
         request.banned_pairs.empty();
}

// A score of the id that follows `ids`, against the toy's formula.
void check_score(const TokenScore& score, const Ids& ids, int64_t num_whole, int64_t num_alternatives) {
  const auto place = static_cast<int64_t>(ids.size()) - 1;
  const std::vector<float> logits = toy::logits_after(ids, place, num_whole, {}, toy::kVocabulary);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  ASSERT_NEAR(score.log_probability, logits[static_cast<size_t>(score.id)] - std::log(sum), 1e-12);
  const float largest = *std::max_element(logits.begin(), logits.end());
  ASSERT_EQ(score.is_greedy, logits[static_cast<size_t>(score.id)] == largest);
  ASSERT_EQ(score.alternatives.size(), static_cast<size_t>(num_alternatives));
  for (const Alternative& alternative : score.alternatives) {
    ASSERT_TRUE(alternative.id != score.id || alternative.log_probability == score.log_probability);
    const float logit = logits[static_cast<size_t>(alternative.id)];
    const auto num_likelier = std::count_if(logits.begin(), logits.end(), [&](float other) { return other > logit; });
    ASSERT_EQ(num_likelier, &alternative - score.alternatives.data());
  }
}

// Alone is right itself: ids and scores of texts by plain loops over the toy's formula.
TEST(EngineMixes, AloneIsWhatTheModelSays) {
  for (const bool whole : {false, true}) {
    BatchModelShape shape = kCausal;
    shape.whole_prompt = whole;
    const Mixes mixes(shape, 7);
    int num_checked = 0;
    for (size_t index = 0; index < mixes.requests.size(); ++index) {
      const Request& request = mixes.requests[index];
      if (request.beam_width > 0) continue;
      const auto size = static_cast<int64_t>(request.prompt_ids.size());
      const int64_t first = request.score_from.value_or(size);
      const int64_t num_whole = whole ? first : 0;
      Ids ids(request.prompt_ids.begin(), request.prompt_ids.begin() + first);
      for (const TokenScore& score : mixes.expected[index].prompt_scores) {
        check_score(score, ids, num_whole, request.num_alternatives);
        ids.push_back(score.id);
      }
      ASSERT_EQ(ids, request.prompt_ids);
      for (const CompletionChoice& choice : mixes.expected[index].choices) {
        ids = request.prompt_ids;
        for (const TokenScore& score : choice.tokens) {
          check_score(score, ids, num_whole, request.num_alternatives);
          ASSERT_TRUE(score.is_greedy || !is_plain_greedy(request));
          ids.push_back(score.id);
          ++num_checked;
        }
      }
    }
    EXPECT_GT(num_checked, 1500);
  }
}

}  // namespace engine_mix_test
}  // namespace espalier::infer
