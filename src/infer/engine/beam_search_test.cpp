#include "infer/engine/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "infer/engine/completion.h"
#include "infer/engine/toy_model_test.h"

namespace espalier::infer {
namespace beam_search_test {

using Ids = std::vector<int32_t>;
constexpr int64_t kVocabulary = 5;

std::vector<double> log_probabilities(const Ids& ids) {
  const std::vector<float> logits =
      toy::logits_after(ids, static_cast<int64_t>(ids.size()) - 1, /*num_whole=*/0, {}, kVocabulary);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  std::vector<double> values;
  for (const float logit : logits) values.push_back(logit - std::log(sum));
  return values;
}

struct Text {
  Ids ids;
  double sum = 0, score = 0;
};

bool is_better(const Text& a, const Text& b) { return a.score > b.score; }

Completion searched(const Ids& prompt, int64_t width, int64_t max_tokens, double penalty, const Ids& stops) {
  toy::ToyModel model({.vocab_size = kVocabulary, .page_tokens = 4, .num_pages = 4000});
  Engine engine(model, nullptr, {.scheduler = {.max_sequences = 700}, .max_choices = 700});
  Request request;
  request.prompt_ids = prompt;
  request.beam_width = request.n = width;
  request.max_tokens = max_tokens;
  request.length_penalty = penalty;
  request.stop_ids = stops;
  return complete(engine, {request})[0];
}

void expect_texts(const Completion& found, const std::vector<Text>& expected) {
  ASSERT_EQ(found.choices.size(), expected.size());
  for (size_t place = 0; place < expected.size(); ++place) {
    Ids ids;
    for (const TokenScore& token : found.choices[place].tokens) ids.push_back(token.id);
    EXPECT_EQ(ids, expected[place].ids) << "place " << place;
    EXPECT_NEAR(found.choices[place].finish.score, expected[place].score, 1e-9) << "place " << place;
  }
}

// All texts of up to `max_tokens` ids.
void enumerate(const Text& text, int64_t max_tokens, double penalty, int32_t stop, const Ids& prompt,
               std::vector<Text>& all) {
  Ids whole = prompt;
  whole.insert(whole.end(), text.ids.begin(), text.ids.end());
  const std::vector<double> next = log_probabilities(whole);
  for (int32_t id = 0; id < kVocabulary; ++id) {
    Text longer = text;
    longer.ids.push_back(id);
    longer.sum += next[static_cast<size_t>(id)];
    const auto length = static_cast<int64_t>(longer.ids.size());
    longer.score = longer.sum / std::pow(static_cast<double>(length), penalty);
    if (id == stop || length == max_tokens)
      all.push_back(longer);
    else
      enumerate(longer, max_tokens, penalty, stop, prompt, all);
  }
}

TEST(BeamSearch, WideEnoughFindsTheBestOfAllTexts) {
  for (const double penalty : {0.0, 1.0, 2.0}) {
    std::vector<Text> all;
    enumerate({}, 4, penalty, /*stop=*/2, {1, 3}, all);
    std::sort(all.begin(), all.end(), is_better);
    const Completion found = searched({1, 3}, 700, 4, penalty, {2});
    all.resize(std::min<size_t>(all.size(), found.choices.size()));
    ASSERT_GT(all.size(), 300u);
    expect_texts(found, all);
  }
}

// The search of the page on Megatron's formats, as a plain loop over whole texts.
std::vector<Text> plain_search(const Ids& prompt, size_t width, int64_t max_tokens, double penalty, int32_t stop) {
  std::vector<Text> beams(1), finished;
  const auto add = [&](Text text, int64_t length) {
    text.score = text.sum / std::pow(static_cast<double>(length), penalty);
    finished.push_back(text);
    std::stable_sort(finished.begin(), finished.end(), is_better);
    if (finished.size() > width) finished.pop_back();
  };
  for (int64_t length = 1; length <= max_tokens; ++length) {
    std::vector<Text> longer;
    for (const Text& beam : beams) {
      Ids whole = prompt;
      whole.insert(whole.end(), beam.ids.begin(), beam.ids.end());
      const std::vector<double> next = log_probabilities(whole);
      for (int32_t id = 0; id < kVocabulary; ++id) {
        longer.push_back(beam);
        longer.back().ids.push_back(id);
        longer.back().sum += next[static_cast<size_t>(id)];
      }
    }
    std::sort(longer.begin(), longer.end(), [](const Text& a, const Text& b) { return a.sum > b.sum; });
    longer.resize(std::min(longer.size(), 2 * width));
    const double best = longer[0].sum;
    beams.clear();
    for (size_t rank = 0; rank < longer.size() && beams.size() < width; ++rank) {
      if (longer[rank].ids.back() != stop)
        beams.push_back(longer[rank]);
      else if (rank < width)
        add(longer[rank], length);
    }
    const double best_score = best / std::pow(static_cast<double>(length), penalty);
    if (finished.size() == width && finished.back().score >= best_score) return finished;
    if (length == max_tokens)
      for (const Text& beam : beams) add(beam, length);
  }
  return finished;
}

TEST(BeamSearch, NarrowOnesGoAsMegatrons) {
  std::mt19937 random(3);
  int num_stopped = 0;
  for (int round = 0; round < 300; ++round) {
    Ids prompt(1 + random() % 9);
    for (int32_t& id : prompt) id = static_cast<int32_t>(random() % kVocabulary);
    const size_t width = 1 + random() % 4;
    const auto max_tokens = static_cast<int64_t>(1 + random() % 12);
    const double penalty = static_cast<double>(random() % 3) * 0.6;
    const Completion found = searched(prompt, static_cast<int64_t>(width), max_tokens, penalty, {4});
    expect_texts(found, plain_search(prompt, width, max_tokens, penalty, 4));
    for (const CompletionChoice& choice : found.choices) {
      const bool is_stopped = choice.tokens.back().id == 4;
      EXPECT_EQ(choice.finish.reason == FinishReason::kStop, is_stopped);
      num_stopped += is_stopped ? 1 : 0;
    }
  }
  EXPECT_GT(num_stopped, 100);
}

}  // namespace beam_search_test
}  // namespace espalier::infer
