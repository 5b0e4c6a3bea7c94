#include "infer/engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <set>
#include <thread>

#include "base/error.h"
#include "infer/engine/completion.h"
#include "infer/engine/toy_model_test.h"

namespace espalier::infer {
namespace engine_test {

using Ids = std::vector<int32_t>;
const toy::ToyTokenizer kTokenizer = toy::tokenizer();

constexpr BatchModelShape kShape{
    .vocab_size = toy::kVocabulary, .page_tokens = 4, .num_pages = 32, .max_positions = 100};

Ids counted(int64_t count, int32_t first = 0) {
  Ids ids;
  for (int64_t at = 0; at < count; ++at) ids.push_back(static_cast<int32_t>((first + at * 5) % toy::kVocabulary));
  return ids;
}

Request request_of(const Ids& prompt, int64_t max_tokens) {
  Request request;
  request.prompt_ids = prompt;
  request.max_tokens = max_tokens;
  return request;
}

Ids ids_of(const std::vector<TokenScore>& tokens) {
  Ids ids;
  for (const TokenScore& token : tokens) ids.push_back(token.id);
  return ids;
}

struct Fixture {
  toy::ToyModel model;
  Engine engine;
  explicit Fixture(const SchedulerConfig& scheduler = {}, const BatchModelShape& shape = kShape)
      : model(shape), engine(model, &kTokenizer, {.scheduler = scheduler}) {}
};

TEST(Engine, ScoresWithoutDrawing) {
  Fixture fixture({.max_logit_rows = 3});
  const Ids context = counted(9), continuation = {3, 1, 4, 1, 5};
  const Completion scored = complete(fixture.engine, {score_request(context, continuation)})[0];
  double sum = 0;
  Ids ids = context;
  for (const int32_t id : continuation) {
    const auto logits = toy::logits_after(ids, static_cast<int64_t>(ids.size()) - 1, 0, {}, toy::kVocabulary);
    double total = 0;
    for (const float logit : logits) total += std::exp(static_cast<double>(logit));
    sum += logits[static_cast<size_t>(id)] - std::log(total);
    ids.push_back(id);
  }
  EXPECT_NEAR(log_likelihood(scored).sum, sum, 1e-12);
  EXPECT_FALSE(log_likelihood(scored).is_greedy);
  EXPECT_TRUE(scored.choices[0].tokens.empty());
  // The last id is not run, and the context costs no rows of logits.
  EXPECT_EQ(fixture.engine.counters().num_tokens_run, 13);

  Request greedy = request_of(context, 4);
  greedy.sampling.temperature = 0;
  const Completion text = complete(fixture.engine, {greedy})[0];
  const Completion again = complete(fixture.engine, {score_request(context, ids_of(text.choices[0].tokens))})[0];
  EXPECT_TRUE(log_likelihood(again).is_greedy);
  EXPECT_EQ(again.prompt_scores, text.choices[0].tokens);
}

TEST(Engine, ScoringALongPromptKeepsFewRowsOfLogits) {
  Fixture fixture({.max_sequences = 4, .max_logit_rows = 5});
  Request echo = request_of(counted(90), 1);
  echo.score_from = 1;
  EXPECT_EQ(complete(fixture.engine, {echo, echo, echo})[2].prompt_scores.size(), 89u);
  EXPECT_LE(fixture.model.most_rows, 5);
}

TEST(Engine, AStopIdEndsTheTextAndIsNoPartOfIt) {
  Fixture fixture;
  Request request = request_of(counted(5), 20);
  const Ids free = ids_of(complete(fixture.engine, {request})[0].choices[0].tokens);
  request.stop_ids = {free[3]};
  const auto first = std::find(free.begin(), free.end(), free[3]) + 1;
  const Completion stopped = complete(fixture.engine, {request})[0];
  EXPECT_EQ(ids_of(stopped.choices[0].tokens), Ids(free.begin(), first));
  EXPECT_EQ(stopped.choices[0].finish.reason, FinishReason::kStop);
  EXPECT_EQ(stopped.choices[0].finish.stop_id, free[3]);
  EXPECT_EQ(stopped.choices[0].text, kTokenizer.decode(Ids(free.begin(), first - 1), true));
  request.min_tokens = 15;
  const Completion longer = complete(fixture.engine, {request})[0];
  EXPECT_GE(longer.choices[0].tokens.size(), 15u);
  for (size_t token = 0; token < 15; ++token) EXPECT_NE(longer.choices[0].tokens[token].id, free[3]);
}

// Two newlines of Megatron's, one of which may be the prompt's; no newline after a colon.
TEST(Engine, StopSequencesAndBannedPairsLookBack) {
  Fixture fixture;
  Request request = request_of(counted(5), 30);
  request.sampling.logit_bias = {{3, 8.0}, {4, 6.0}};
  const auto has_pair = [](const Ids& ids) {
    for (size_t at = 1; at < ids.size(); ++at)
      if (ids[at - 1] == 4 && ids[at] == 3) return true;
    return false;
  };
  const Ids free = ids_of(complete(fixture.engine, {request})[0].choices[0].tokens);
  ASSERT_TRUE(has_pair(free));
  request.stop_sequences = {{9, 9, 9}, {4, 3}};
  const Completion stopped = complete(fixture.engine, {request})[0];
  const Ids ids = ids_of(stopped.choices[0].tokens);
  EXPECT_EQ(stopped.choices[0].finish.stop_id, 3);
  EXPECT_TRUE(has_pair(ids));
  EXPECT_FALSE(has_pair(Ids(ids.begin(), ids.end() - 1)));
  EXPECT_EQ(ids, Ids(free.begin(), free.begin() + static_cast<std::ptrdiff_t>(ids.size())));

  request.stop_sequences = {};
  request.banned_pairs = {{4, 3}};
  EXPECT_FALSE(has_pair(ids_of(complete(fixture.engine, {request})[0].choices[0].tokens)));

  Request looking_back = request_of({1, 4}, 5);
  looking_back.stop_sequences = {{4, 3}};
  looking_back.sampling.logit_bias = {{3, 100.0}};
  EXPECT_EQ(ids_of(complete(fixture.engine, {looking_back})[0].choices[0].tokens), Ids({3}));
}

TEST(Engine, AStopStringEndsTheTextBeforeIt) {
  Fixture fixture;
  Request request = request_of(counted(5), 40);
  request.sampling.logit_bias = {{0, 6.0}, {1, 6.0}};
  const std::string free = complete(fixture.engine, {request})[0].choices[0].text;
  const size_t place = free.find("bb");
  ASSERT_NE(place, std::string::npos) << free;
  request.stop_strings = {"zz", "bb"};
  const Completion stopped = complete(fixture.engine, {request})[0];
  EXPECT_EQ(stopped.choices[0].text, free.substr(0, place));
  EXPECT_EQ(stopped.choices[0].finish.stop_string, "bb");
}

TEST(Engine, EventsAddUpToTheWholeAnswer) {
  Fixture fixture;
  Request request = request_of(counted(7), 9);
  request.n = 3;
  request.score_from = 2;
  request.stream = true;
  std::vector<Event> events;
  const uint64_t id = fixture.engine.submit(request, [&](const Event& event) { events.push_back(event); });
  while (fixture.engine.step()) continue;
  std::set<int64_t> finished;
  for (const Event& event : events) {
    EXPECT_EQ(event.request, id);
    EXPECT_LE(event.tokens.size(), 1u);
    EXPECT_FALSE(finished.contains(event.choice));
    if (event.finish) finished.insert(event.choice);
    EXPECT_EQ(event.is_last, finished.size() == 3);
  }
  EXPECT_EQ(finished.size(), 3u);
  EXPECT_TRUE(events.back().is_last);
}

TEST(Engine, TheBestOfManyHaveTheBestMeanLogProbability) {
  Fixture fixture;
  Request request = request_of(counted(6), 7);
  request.n = 7;
  Completion all = complete(fixture.engine, {request})[0];
  std::set<Ids> different;
  std::vector<double> means;
  for (const CompletionChoice& choice : all.choices) {
    double sum = 0;
    for (const TokenScore& token : choice.tokens) sum += token.log_probability;
    means.push_back(sum / static_cast<double>(choice.tokens.size()));
    different.insert(ids_of(choice.tokens));
  }
  EXPECT_GT(different.size(), 5u);
  std::sort(means.rbegin(), means.rend());
  request.n = 2;
  request.best_of = 7;
  const Completion best = complete(fixture.engine, {request})[0];
  ASSERT_EQ(best.choices.size(), 2u);
  EXPECT_NEAR(best.choices[0].finish.score, means[0], 1e-12);
  EXPECT_NEAR(best.choices[1].finish.score, means[1], 1e-12);
  // The prompt was run once: the others found its full pages.
  EXPECT_GT(fixture.engine.counters().num_prefix_tokens, 0);
}

TEST(Engine, CallbacksMaySubmitAndCancel) {
  Fixture fixture;
  int64_t num_answers = 0, num_tokens = 0;
  const uint64_t endless = fixture.engine.submit(request_of(counted(3), 90), [&](const Event& event) {
    num_tokens += static_cast<int64_t>(event.tokens.size());
    num_answers += event.is_last ? 1 : 0;
  });
  fixture.engine.submit(request_of(counted(4), 2), [&](const Event& first) {
    if (!first.is_last) return;
    fixture.engine.submit(request_of(counted(5), 2), [&](const Event& second) {
      if (!second.is_last) return;
      num_answers += 1;
      fixture.engine.cancel(endless);
    });
  });
  while (fixture.engine.step()) continue;
  EXPECT_EQ(num_answers, 2);
  EXPECT_EQ(num_tokens, 4);
  EXPECT_EQ(fixture.engine.counters().num_cancelled, 1);
}

TEST(Engine, StreamsOfEqualSeedsDiffer) {
  Fixture fixture;
  Request first = request_of(counted(6), 12), second = first;
  second.random_stream = 1;
  const auto answers = complete(fixture.engine, {first, second, first});
  EXPECT_NE(answers[0], answers[1]);
  EXPECT_EQ(answers[0], answers[2]);
}

// While a long prompt arrives, each text continues in each pass.
TEST(Engine, TextsGoOnWhileALongPromptArrives) {
  Fixture fixture({.max_sequences = 8, .max_step_tokens = 8});
  std::vector<int> num_tokens(3, 0);
  for (int text = 0; text < 3; ++text)
    fixture.engine.submit(request_of(counted(2, text), 30), [&num_tokens, text](const Event& event) {
      num_tokens[static_cast<size_t>(text)] += static_cast<int>(event.tokens.size());
    });
  fixture.engine.step();
  bool has_answer = false;
  fixture.engine.submit(request_of(counted(61), 1), [&](const Event&) { has_answer = true; });
  int num_steps = 0;
  while (!has_answer) {
    const std::vector<int> before = num_tokens;
    ASSERT_TRUE(fixture.engine.step());
    ++num_steps;
    for (size_t text = 0; text < 3; ++text) EXPECT_EQ(num_tokens[text], before[text] + 1);
  }
  EXPECT_EQ(num_steps, 13);  // 61 ids, five a pass alongside the three texts
}

// Of the long prompt a pass takes less while there are texts, and as much as it can when there are none.
TEST(Engine, APromptTakesSmallPiecesBesideTexts) {
  Fixture fixture({.max_sequences = 8, .max_step_tokens = 16, .max_prompt_tokens_beside_texts = 3});
  for (const auto& [text_tokens, steps] : {std::pair{40, 21}, std::pair{1, 4}}) {
    fixture.engine.submit(request_of(counted(2, text_tokens), text_tokens), [](const Event&) {});
    fixture.engine.step();
    bool has_answer = false;
    fixture.engine.submit(request_of(counted(61, text_tokens), 1), [&](const Event&) { has_answer = true; });
    int num_steps = 0;
    for (; !has_answer; ++num_steps) ASSERT_TRUE(fixture.engine.step());
    EXPECT_EQ(num_steps, steps) << text_tokens;  // 61 ids, three a pass or sixteen
    while (fixture.engine.step()) {
    }
  }
}

// As the choices of a task are scored: the context that they share is run once, though all of them came together.
TEST(Engine, WhatComesTogetherIsRunOnce) {
  Fixture fixture;
  std::vector<Request> requests;
  for (int32_t question = 0; question < 3; ++question)
    for (int32_t answer = 0; answer < 4; ++answer)
      requests.push_back(score_request(counted(17, question), counted(3, 5 + answer)));
  complete(fixture.engine, requests);
  // Each context once, then what follows its four full pages: an id of the context and two that others follow.
  EXPECT_EQ(fixture.engine.counters().num_tokens_run, 3 * 16 + 12 * 3);
  EXPECT_LE(fixture.model.num_passes, 3);
}

// One that needs the whole cache, among small ones that never cease to arrive.
TEST(Engine, ALargeRequestIsNotStarved) {
  Fixture fixture({.max_sequences = 8}, {.vocab_size = toy::kVocabulary, .page_tokens = 4, .num_pages = 10});
  bool is_done = false;
  const auto submit_small = [&](int32_t first) { fixture.engine.submit(request_of(counted(3, first), 9), {}); };
  for (int32_t first = 0; first < 8; ++first) submit_small(first);
  fixture.engine.step();
  fixture.engine.submit(request_of(counted(30), 11), [&](const Event& event) { is_done = event.is_last; });
  int num_steps = 0;
  for (; !is_done && num_steps < 200; ++num_steps) {
    submit_small(num_steps % 17);
    fixture.engine.step();
  }
  EXPECT_LT(num_steps, 60);
}

TEST(Engine, AHigherPriorityGoesFirst) {
  Fixture fixture({.max_sequences = 1});
  std::vector<int> order;
  for (int number = 0; number < 3; ++number) {
    Request request = request_of(counted(3, number), 2);
    request.priority = number == 2 ? 1 : 0;
    fixture.engine.submit(request, [&order, number](const Event& event) {
      if (event.is_last) order.push_back(number);
    });
  }
  while (fixture.engine.step()) continue;
  EXPECT_EQ(order, std::vector<int>({2, 0, 1}));
}

std::vector<Request> requests_of_all_kinds() {
  std::vector<Request> requests(5, request_of(counted(9), 6));
  requests[1].n = 3;
  requests[2].n = 1, requests[2].best_of = 3;
  requests[3].beam_width = 3;
  requests[4].score_from = 1, requests[4].max_tokens = 0, requests[4].prompt_ids = counted(40, 2);
  return requests;
}

TEST(Engine, CancellingAtAnyMomentFreesAllPages) {
  for (const int64_t num_pages : {12, 64}) {
    bool has_ended = false;
    for (int moment = 0; !has_ended; ++moment) {
      Fixture fixture({.max_sequences = 6, .max_step_tokens = 7, .max_logit_rows = 6},
                      {.vocab_size = toy::kVocabulary, .page_tokens = 4, .num_pages = num_pages});
      std::vector<uint64_t> ids;
      std::vector<Completion> answers(5);
      for (const Request& request : requests_of_all_kinds()) {
        Completion& answer = answers[ids.size()];
        ids.push_back(fixture.engine.submit(request, [&answer](const Event& event) { answer.add(event); }));
      }
      for (int step = 0; step < moment; ++step) has_ended = !fixture.engine.step();
      const int64_t num_finished = fixture.engine.counters().num_finished;
      for (const uint64_t id : ids) fixture.engine.cancel(id);
      fixture.engine.step();
      const EngineCounters counters = fixture.engine.counters();
      EXPECT_EQ(counters.num_pages_held, 0) << "moment " << moment;
      EXPECT_EQ(counters.num_running + counters.num_waiting, 0);
      EXPECT_EQ(counters.num_cancelled, 5 - num_finished);
      for (const Completion& answer : answers) EXPECT_TRUE(answer.is_whole);
      EXPECT_FALSE(fixture.engine.step());
    }
  }
}

TEST(Engine, APassThatThrowsCanBeRunAgain) {
  const std::vector<Request> requests = requests_of_all_kinds();
  Fixture sound;
  const std::vector<Completion> expected = complete(sound.engine, requests);
  Fixture fixture;
  std::vector<Completion> answers(requests.size());
  for (size_t index = 0; index < requests.size(); ++index)
    fixture.engine.submit(requests[index], [&answer = answers[index]](const Event& event) { answer.add(event); });
  int num_thrown = 0;
  for (bool goes_on = true; goes_on;) {
    fixture.model.throw_at = fixture.model.num_passes % 3 == num_thrown % 2 ? 0 : -1;
    try {
      goes_on = fixture.engine.step();
    } catch (const std::runtime_error&) {
      ++num_thrown;
    }
  }
  EXPECT_GT(num_thrown, 2);
  EXPECT_EQ(answers, expected);
}

TEST(Engine, LogitsThatAreNoNumbersFailTheirRequestAlone) {
  Fixture fixture;
  fixture.model.nan_after = 16;
  std::vector<Completion> answers(2);
  fixture.engine.submit(request_of({1, 2, 16}, 3), [&](const Event& event) { answers[0].add(event); });
  Request good = request_of({1, 2, 3}, 3);
  good.sampling.logit_bias = {{16, -100.0}};
  fixture.engine.submit(good, [&](const Event& event) { answers[1].add(event); });
  while (fixture.engine.step()) continue;
  EXPECT_EQ(answers[0].choices[0].finish.reason, FinishReason::kFailed);
  EXPECT_EQ(answers[0].choices[0].finish.message, "the model's logits after 3 ids are not numbers");
  EXPECT_EQ(answers[1].choices[0].finish.reason, FinishReason::kLength);
  EXPECT_EQ(fixture.engine.counters().num_failed, 1);
  EXPECT_EQ(fixture.engine.counters().num_pages_held, 0);
  EXPECT_THROW(complete(fixture.engine, {request_of({16}, 1)}), UserError);
}

TEST(Engine, ThreadsMaySubmitAndCancelWhileItRuns) {
  Fixture fixture({}, {.vocab_size = toy::kVocabulary, .page_tokens = 4, .num_pages = 40});
  const Completion expected = complete(fixture.engine, {request_of(counted(9), 8)})[0];
  constexpr int kThreads = 3, kRequests = 200;
  std::vector<std::vector<Completion>> answers(kThreads, std::vector<Completion>(kRequests));
  std::atomic<int> num_open = kThreads * kRequests;
  const auto feed = [&](std::vector<Completion>& own) {
    for (int number = 0; number < kRequests; ++number) {
      const uint64_t id = fixture.engine.submit(
          request_of(counted(9), 8), [&num_open, &answer = own[static_cast<size_t>(number)]](const Event& event) {
            answer.add(event);
            num_open -= event.is_last ? 1 : 0;
          });
      if (number % 7 == 0) fixture.engine.cancel(id);
      EXPECT_GE(fixture.engine.counters().num_requests, 0);
    }
  };
  std::vector<std::thread> threads;
  for (auto& own : answers) threads.emplace_back([&feed, &own] { feed(own); });
  while (num_open > 0)
    if (fixture.engine.wait(std::chrono::milliseconds(100))) fixture.engine.step();
  for (std::thread& thread : threads) thread.join();
  for (const auto& own : answers)
    for (const Completion& answer : own)
      EXPECT_TRUE(answer.choices[0].finish.reason == FinishReason::kCancelled || answer == expected);
  EXPECT_FALSE(fixture.engine.wait(std::chrono::milliseconds(1)));
}

TEST(Engine, WakeEndsAWaitThatHasNothingToDo) {
  Fixture fixture;
  const auto long_enough = std::chrono::minutes(5);
  const auto start = std::chrono::steady_clock::now();
  fixture.engine.wake();  // before it
  EXPECT_FALSE(fixture.engine.wait(long_enough));
  std::thread waker([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    fixture.engine.wake();
  });
  EXPECT_FALSE(fixture.engine.wait(long_enough));
  waker.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, long_enough);
  EXPECT_FALSE(fixture.engine.wait(std::chrono::milliseconds(1)));
}

}  // namespace engine_test
}  // namespace espalier::infer
