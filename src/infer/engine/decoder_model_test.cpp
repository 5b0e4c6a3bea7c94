// Real models in batches: the formulas, and that nothing but a token's own sequence decides its bits.
#include "infer/engine/decoder_model.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "base/cpu_isa.h"
#include "base/format.h"
#include "infer/engine/engine.h"
#include "models/gpt/plain_gpt_test.h"

namespace espalier::infer {
namespace decoder_model_test {

using families::PositionEmbedding;
using models::plain_gpt::PlainGpt;
using Ids = std::vector<int32_t>;

constexpr int64_t kPageTokens = 8, kNumPages = 40, kVocabulary = 29;

// The same weights with gradients, for the plain formulas, and without, in use.
struct Model {
  explicit Model(const families::GptConfig& config, at::ScalarType type = at::kFloat)
      : learning(config),
        params(families::gpt_params(config), {}, type, /*with_grad=*/false),
        model(nn::LayerBuilder{params, dist::single_process()}, config, {}) {
    for (size_t i = 0; i < params.params().size(); ++i)
      params.params()[i].value.copy_(learning.params.params()[i].value);
  }
  models::plain_gpt::WholeGpt learning;
  tensor::ParamSet params;
  models::GptModel model;
};

std::vector<families::GptConfig> kinds() {
  std::vector<families::GptConfig> result;
  for (const auto positions : {PositionEmbedding::kAlibi, PositionEmbedding::kRotary, PositionEmbedding::kLearned})
    result.push_back(models::plain_gpt::awkward_gpt(positions));
  result.push_back(result.front());
  result.back().mup = models::plain_gpt::awkward_mup();
  result.push_back(result.front());
  result.back().logit_soft_cap = 2, result.back().attn_logit_soft_cap = 0.5;
  return result;
}

struct Sequence {
  Ids ids, pages;
};

std::vector<Sequence> sequences() {
  Ids order(kNumPages);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(7));
  std::vector<Sequence> result;
  size_t next = 0;
  for (const int64_t length : {1, 33, 7, 20, 16}) {
    Sequence sequence;
    for (int64_t at = 0; at < length; ++at)
      sequence.ids.push_back(static_cast<int32_t>((length + at * 7) % kVocabulary));
    for (int64_t page = 0; page * kPageTokens < length; ++page) sequence.pages.push_back(order[next++]);
    result.push_back(sequence);
  }
  return result;
}

// Logits after every token, [length, vocabulary] of each sequence; in runs of at most `most` tokens, all sequences in
// one pass or one at a time.
std::vector<std::vector<float>> logits_of(BatchModel& model, const std::vector<Sequence>& all, int64_t most,
                                          bool together, bool whole = false) {
  std::vector<std::vector<float>> results(all.size());
  std::vector<size_t> done(all.size(), 0);
  for (size_t turn = 0; done !=
                        [&] {
                          std::vector<size_t> ends;
                          for (const Sequence& sequence : all) ends.push_back(sequence.ids.size());
                          return ends;
                        }();
       ++turn) {
    std::vector<TokenRun> runs;
    std::vector<size_t> of;
    for (size_t i = 0; i < all.size(); ++i) {
      if (done[i] == all[i].ids.size() || (!together && i != turn % all.size())) continue;
      const size_t count = std::min(static_cast<size_t>(most), all[i].ids.size() - done[i]);
      runs.push_back({.ids = std::span(all[i].ids).subspan(done[i], count),
                      .first_position = static_cast<int64_t>(done[i]),
                      .pages = all[i].pages,
                      .num_logits = static_cast<int64_t>(count),
                      .whole = whole});
      of.push_back(i);
      done[i] += count;
    }
    if (runs.empty()) continue;
    int64_t rows = 0;
    for (const TokenRun& run : runs) rows += run.num_logits;
    std::vector<float> logits(static_cast<size_t>(rows * kVocabulary));
    model.forward(runs, logits.data());
    auto from = logits.begin();
    for (size_t run = 0; run < runs.size(); ++run) {
      const auto end = from + runs[run].num_logits * kVocabulary;
      results[of[run]].insert(results[of[run]].end(), from, end);
      from = end;
    }
  }
  return results;
}

TEST(DecoderModel, LogitsAreThoseOfPlainFormulas) {
  const at::NoGradGuard no_grad;
  for (const bool whole : {false, true})
    for (families::GptConfig config : kinds()) {
      config.whole_prompt = whole;
      Model model(config);
      const PlainGpt plain(config, model.learning.params);
      DecoderModel batches(model.model, {at::kFloat}, {.page_tokens = kPageTokens, .num_pages = kNumPages});
      EXPECT_EQ(batches.shape().whole_prompt, whole);
      const std::vector<Sequence> all = sequences();
      const auto logits = logits_of(batches, all, 100, /*together=*/true, whole);
      for (size_t i = 0; i < all.size(); ++i) {
        const auto s = static_cast<int64_t>(all[i].ids.size());
        const at::Tensor ids =
            at::tensor(std::vector<int64_t>(all[i].ids.begin(), all[i].ids.end()), at::kLong).unsqueeze(0);
        const at::Tensor visible = whole ? at::ones({1, s, s}, at::kBool) : at::ones({1, s, s}, at::kBool).tril();
        const at::Tensor expected =
            plain.logits(ids, at::arange(s, at::kLong).unsqueeze(0), visible)[0].narrow(1, 0, kVocabulary);
        const at::Tensor ours = at::from_blob(const_cast<float*>(logits[i].data()), {s, kVocabulary}, at::kFloat);
        EXPECT_LT((ours - expected).abs().max().item<double>(), 2e-5 * expected.abs().max().item<double>())
            << "whole " << whole << ", positions " << static_cast<int>(config.position_embedding) << ", row " << i;
      }
    }
}

TEST(DecoderModel, ATokensBitsDependOnItsSequenceAlone) {
  const int threads = at::get_num_threads();
  for (const CpuIsa isa : cpu_isas_of_machine()) {
    const ForceCpuIsa force(isa);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
      for (const families::GptConfig& config : kinds()) {
        Model model(config, type);
        DecoderModel batches(model.model, {type}, {.page_tokens = kPageTokens, .num_pages = kNumPages});
        std::vector<Sequence> all = sequences();
        at::set_num_threads(threads);
        const auto expected = logits_of(batches, all, 100, /*together=*/true);
        for (const int count : {1, 3})
          for (const int64_t most : {1, 7, 33})
            for (const bool together : {false, true}) {
              at::set_num_threads(count);
              // Other pages, too.
              for (Sequence& sequence : all)
                for (int32_t& page : sequence.pages) page = (page + 11) % kNumPages;
              const auto logits = logits_of(batches, all, most, together);
              for (size_t i = 0; i < all.size(); ++i)
                EXPECT_EQ(std::memcmp(logits[i].data(), expected[i].data(), expected[i].size() * sizeof(float)), 0)
                    << cpu_isa_name(isa) << " " << c10::toString(type) << " most " << most << " together " << together
                    << " threads " << count << " row " << i;
            }
      }
  }
  at::set_num_threads(threads);
}

// Requests through the engine with so few pages that texts are preempted: the scores of each are those of its own.
void expect_requests_do_not_see_each_other(const families::GptConfig& config) {
  Model model(config, at::kBFloat16);
  const auto run = [&](const std::vector<Request>& requests, int64_t pages) {
    DecoderModel batches(model.model, {at::kBFloat16}, {.page_tokens = kPageTokens, .num_pages = pages});
    Engine engine(batches, nullptr, {});
    std::vector<std::vector<TokenScore>> answers(requests.size());
    for (size_t i = 0; i < requests.size(); ++i)
      engine.submit(requests[i], [&answers, i](const Event& event) {
        for (const auto* scores : {&event.prompt_scores, &event.tokens})
          answers[i].insert(answers[i].end(), scores->begin(), scores->end());
      });
    while (engine.step()) {
    }
    return std::pair(answers, engine.counters());
  };
  std::vector<Request> requests;
  for (int32_t i = 0; i < 12; ++i) {
    Request request;
    for (int32_t at = 0; at < 3 + 4 * (i % 4); ++at) request.prompt_ids.push_back((at * 5 + i / 4) % kVocabulary);
    request.max_tokens = 4 + i;
    request.num_alternatives = 2;
    request.random_stream = static_cast<uint32_t>(i);
    if (i % 3 == 0) request.score_from = 1;
    requests.push_back(request);
  }
  const auto [together, counters] = run(requests, 14);
  EXPECT_GT(counters.num_preemptions, 0);
  EXPECT_GT(counters.num_prefix_tokens, 0);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(run({requests[i]}, kNumPages).first[0], together[i]) << i;
}

TEST(DecoderModel, RequestsOfTheEngineDoNotSeeEachOther) {
  expect_requests_do_not_see_each_other(models::plain_gpt::awkward_gpt(PositionEmbedding::kRotary));
}

// Some of the requests stay within the original length, others may go beyond it.
TEST(DecoderModel, NeitherDoThoseOfALengthThatTurnsPositionsOtherwise) {
  families::GptConfig config = models::plain_gpt::awkward_gpt(PositionEmbedding::kRotary);
  config.rope_scaling = {.kind = spec::RopeScaling::Kind::kLongRope,
                         .original_max_position_embeddings = 14,
                         .short_factors = {1, 1.1, 1.3, 1.7},
                         .long_factors = {1.5, 2, 3, 4}};
  expect_requests_do_not_see_each_other(config);
}

}  // namespace decoder_model_test
}  // namespace espalier::infer
