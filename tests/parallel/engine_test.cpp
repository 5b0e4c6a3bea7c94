// The engine over tensor ranks: within a layout a request's bits are its own, and across layouts the numbers are those
// of one process.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/format.h"
#include "dist/local_ranks.h"
#include "dist/ordered_sums.h"
#include "infer/engine/engine.h"
#include "infer/engine/leading_model.h"
#include "models/gpt/model.h"
#include "models/t5/model.h"

namespace espalier::test {
namespace parallel_engine_test {

using families::PositionEmbedding;
using infer::Request;
using Json = nlohmann::json;

constexpr int64_t kVocabulary = 29, kPageTokens = 8;

struct Kind {
  std::string name;
  PositionEmbedding positions = PositionEmbedding::kAlibi;
  int64_t groups = 4;
  bool gated = false;
  bool is_t5 = false;
};

// A vocabulary of which the last ranks get fewer rows, and of which the last rows are padding.
families::GptConfig gpt_of(const Kind& kind) {
  families::GptConfig config;
  config.num_layers = 2;
  config.hidden_size = 32;
  config.ffn_hidden_size = 40;
  config.num_attention_heads = 8;
  config.num_query_groups = kind.groups;
  config.kv_channels = 8;
  config.max_position_embeddings = 64;
  config.vocab_size = kVocabulary;
  config.padded_vocab_size = 33;
  config.position_embedding = kind.positions;
  config.embed_layernorm = kind.positions == PositionEmbedding::kAlibi;
  if (kind.gated) config.activation = spec::Activation::kSwiglu;
  config.init_method_std = 0.4;  // so that the most likely tokens differ
  config.hidden_dropout = config.attention_dropout = 0;
  return config;
}

families::T5Config small_t5() {
  families::T5Config config;
  config.num_layers = 3;
  config.decoder_num_layers = 2;
  config.hidden_size = 20;
  config.ffn_hidden_size = 36;
  config.num_attention_heads = 4;
  config.kv_channels = 7;
  config.positions = families::T5Positions::kRelative;
  config.relative_attention_num_buckets = 8;
  config.relative_attention_max_distance = 12;
  config.vocab_size = kVocabulary;
  config.padded_vocab_size = 33;
  config.scale_attention = false;
  config.init_method_std = 0.4;
  config.hidden_dropout = config.attention_dropout = 0;
  return config;
}

// Twelve of up to 15 new tokens, some scored, some that begin alike, some drawn.
std::vector<Request> requests(bool has_encoder) {
  std::vector<Request> all;
  for (int32_t i = 0; i < 12; ++i) {
    Request request;
    std::vector<int32_t> ids;
    for (int32_t at = 0; at < 3 + 4 * (i % 5); ++at) ids.push_back((at * 5 + i / 6) % kVocabulary);
    request.prompt_ids = has_encoder ? std::vector<int32_t>{3} : ids;
    if (has_encoder) request.encoder_ids = ids;
    request.max_tokens = 4 + i;
    request.num_alternatives = 2;
    request.random_stream = static_cast<uint32_t>(i);
    if (i % 2 == 0) request.sampling.top_k = 1;
    if (i % 3 == 0 && !has_encoder) request.score_from = 1;
    if (i == 4) request.beam_width = 3, request.n = 2, request.sampling = {}, request.num_alternatives = 0;
    all.push_back(request);
  }
  return all;
}

// Of each request its tokens with their scores, all digits of them.
Json answers_of(infer::BatchModel& model, const std::vector<Request>& asked, infer::EngineCounters* counters) {
  infer::Engine engine(model, nullptr, {});
  std::vector<Json> answers(asked.size(), Json::array());
  for (size_t i = 0; i < asked.size(); ++i)
    engine.submit(asked[i], [&answers, i](const infer::Event& event) {
      for (const auto* scores : {&event.prompt_scores, &event.tokens})
        for (const infer::TokenScore& score : *scores)
          answers[i].push_back({score.id, format_printf("%a", score.log_probability), score.log_probability});
    });
  while (engine.step()) {
  }
  if (counters != nullptr) *counters = engine.counters();
  return answers;
}

// What the first rank answers: all requests at once with so few pages that texts give way, and each alone.
std::string answers(const Kind& kind, const dist::Grid& given, at::ScalarType type) {
  dist::Grid grid = given;
  if (grid.transport == "Gloo") grid.tensor = dist::adding_in_order(grid.tensor);
  const std::vector<spec::ParamSpec> specs =
      kind.is_t5 ? families::t5_params(small_t5()) : families::gpt_params(gpt_of(kind));
  tensor::ParamSet params(specs, grid.tensor_shard(), type, /*with_grad=*/false);
  params.initialize(7, [](tensor::Param&, const at::Tensor&) {});
  const nn::LayerBuilder builder{params, grid};
  std::unique_ptr<models::Decoder> decoder;
  if (kind.is_t5)
    decoder = std::make_unique<models::T5Model>(builder, small_t5(), plan::DepthRange{0, small_t5().last_depth() + 1},
                                                models::StageOptions{});
  else
    decoder = std::make_unique<models::GptModel>(builder, gpt_of(kind), models::StageOptions{});
  if (grid.rank > 0) {
    infer::follow(*decoder, {type}, grid.tensor, nullptr);
    return "";
  }
  std::optional<infer::Leader> leader;
  if (grid.world.size() > 1) leader.emplace(grid.tensor, std::chrono::milliseconds(3));  // pulses among the passes
  const auto model_of = [&](int64_t pages) -> std::unique_ptr<infer::BatchModel> {
    const infer::DecoderModelConfig config{.page_tokens = kPageTokens, .num_pages = pages, .max_positions = 0};
    if (leader) return std::make_unique<infer::LeadingModel>(*leader, *decoder, infer::Weights{type}, config);
    return std::make_unique<infer::DecoderModel>(*decoder, infer::Weights{type}, config);
  };
  const std::vector<Request> asked = requests(kind.is_t5);
  infer::EngineCounters counters;
  Json result = {{"together", answers_of(*model_of(kind.is_t5 ? 8 : 14), asked, &counters)}, {"alone", Json::array()}};
  result["preemptions"] = counters.num_preemptions;
  result["prefix_tokens"] = counters.num_prefix_tokens;
  const auto spacious = model_of(60);
  for (const Request& request : asked) result["alone"].push_back(answers_of(*spacious, {request}, nullptr)[0]);
  return result.dump();
}

class ParallelEngine : public ::testing::TestWithParam<Kind> {};

Json answers_of_ranks(const Kind& kind, at::ScalarType type, int64_t ranks, bool shared_memory) {
  dist::LocalRanksOptions options;
  options.shared_memory = shared_memory;
  return Json::parse(dist::run_ranks(
      {.tensor = ranks}, [&](const dist::Grid& grid) { return answers(kind, grid, type); }, options)[0]);
}

TEST_P(ParallelEngine, AnswersOfTensorRanksAreThoseOfOneProcess) {
  const Kind kind = GetParam();
  const auto run = [&](int64_t ranks, bool shared_memory) {
    return answers_of_ranks(kind, at::kFloat, ranks, shared_memory);
  };
  const Json one = run(1, true);
  for (const auto& [ranks, shared_memory] : {std::pair(int64_t{2}, true), {4, true}, {2, false}, {4, false}}) {
    const std::string where = concat(ranks, " ranks, ", shared_memory ? "shared memory" : "Gloo");
    const Json many = run(ranks, shared_memory);
    EXPECT_GT(many.at("preemptions"), 0) << where;
    EXPECT_EQ(many.at("prefix_tokens") > 0, !kind.is_t5) << where;
    EXPECT_EQ(many.at("together"), many.at("alone")) << where;
    for (size_t i = 0; i < one.at("alone").size(); ++i) {
      const Json &expected = one.at("alone")[i], &found = many.at("alone")[i];
      ASSERT_EQ(found.size(), expected.size()) << where << ", request " << i;
      for (size_t at = 0; at < found.size(); ++at) {
        EXPECT_EQ(found[at][0], expected[at][0]) << where << ", request " << i << ", token " << at;
        EXPECT_NEAR(found[at][2].get<double>(), expected[at][2].get<double>(), 1e-5)
            << where << ", request " << i << ", token " << at;
      }
    }
  }
}

// In half the precision too: in company, alone, and after giving way.
TEST_P(ParallelEngine, BitsInBf16AreTheRequestsOwn) {
  const Kind kind = GetParam();
  for (const auto& [ranks, shared_memory] : {std::pair(int64_t{2}, true), {4, true}, {2, false}}) {
    const std::string where = concat(ranks, " ranks, ", shared_memory ? "shared memory" : "Gloo");
    const Json found = answers_of_ranks(kind, at::kBFloat16, ranks, shared_memory);
    EXPECT_GT(found.at("preemptions"), 0) << where;
    EXPECT_EQ(found.at("prefix_tokens") > 0, !kind.is_t5) << where;
    EXPECT_EQ(found.at("together"), found.at("alone")) << where;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, ParallelEngine,
    ::testing::Values(Kind{.name = "Alibi", .positions = PositionEmbedding::kAlibi, .groups = 8},
                      Kind{.name = "RotaryInGroups", .positions = PositionEmbedding::kRotary, .gated = true},
                      Kind{.name = "Learned", .positions = PositionEmbedding::kLearned, .groups = 8},
                      Kind{.name = "T5", .is_t5 = true}),
    [](const auto& info) { return info.param.name; });

// Nothing is asked for a while: a follower that is told to stop is heard of all the same.
TEST(ParallelEngineIdle, APulseTellsTheFirstRankOfTheOthers) {
  const auto texts = dist::run_ranks({.tensor = 3}, [](const dist::Grid& grid) -> std::string {
    families::GptConfig config = gpt_of({.name = "", .groups = 8});
    config.num_attention_heads = config.num_query_groups = 3, config.ffn_hidden_size = 33;
    tensor::ParamSet params(families::gpt_params(config), grid.tensor_shard(), at::kFloat, false);
    const models::GptModel model(nn::LayerBuilder{params, grid}, config, models::StageOptions{});
    if (grid.rank > 0) {
      infer::follow(model, {at::kFloat}, grid.tensor, [&] { return grid.rank == 2; });
      return "let go";
    }
    const infer::Leader leader(grid.tensor, std::chrono::milliseconds(5));
    for (int tries = 0; tries < 6000 && !leader.is_to_stop() && leader.trouble().empty(); ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return leader.is_to_stop() ? "told to stop" : leader.trouble();
  });
  EXPECT_EQ(texts, (std::vector<std::string>{"told to stop", "let go", "let go"}));
}

}  // namespace parallel_engine_test
}  // namespace espalier::test
