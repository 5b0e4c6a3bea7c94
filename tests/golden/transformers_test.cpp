// BLOOM, GPT-2, Llama and similar models against transformers: the same random weights give the same logits, gradients,
// losses of training and greedy continuations. tests/oracle/transformers_oracle.py made tests/data/transformers; with
// ESPALIER_FRESH_ORACLES=DIR the models of DIR/transformers are tried as well. Everything in fp32.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "infer/engine/decoder_model.h"
#include "infer/generate.h"
#include "models/gpt/model.h"
#include "optim/optimizer.h"
#include "pipeline/runner.h"
#include "store/safetensors.h"

namespace espalier {
namespace transformers_test {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr double kLogitTolerance = 1e-5;     // of max(1, largest logit)
constexpr double kGradientTolerance = 1e-4;  // of the norm of the tensor's gradient
constexpr double kZeroTolerance =
    1e-6;  // of the norm of the whole gradient, where a gradient is zero in exact arithmetic
constexpr double kLossTolerance = 1e-5;

std::vector<fs::path> cases() {
  std::vector<fs::path> folders = {"tests/data/transformers"}, found;
  if (const char* fresh = std::getenv("ESPALIER_FRESH_ORACLES")) folders.push_back(fs::path(fresh) / "transformers");
  for (const fs::path& folder : folders)
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".json") found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

spec::Activation activation_of(const std::string& name) {
  using spec::Activation;
  static const std::map<std::string, Activation> names = {
      {"gelu_tanh", Activation::kGeluTanh}, {"gelu_erf", Activation::kGeluErf},    {"relu", Activation::kRelu},
      {"silu", Activation::kSilu},          {"swiglu", Activation::kSwiglu},       {"reglu", Activation::kReglu},
      {"geglu", Activation::kGeglu},        {"geglu_tanh", Activation::kGegluTanh}};
  return names.at(name);
}

void read_rotary(const Json& json, families::GptConfig& config) {
  using Kind = spec::RopeScaling::Kind;
  static const std::map<std::string, Kind> kinds = {{"default", Kind::kNone},
                                                    {"linear", Kind::kLinear},
                                                    {"llama3", Kind::kLlama3},
                                                    {"yarn", Kind::kYarn},
                                                    {"longrope", Kind::kLongRope}};
  config.position_embedding = families::PositionEmbedding::kRotary;
  config.rotary_base = json.at("rope_theta");
  config.rotary_percent = json.at("partial_rotary_factor");
  spec::RopeScaling& scaling = config.rope_scaling;
  scaling.kind = kinds.at(json.at("rope_type"));
  scaling.factor = json.value("factor", 1.0);
  scaling.low_freq_factor = json.value("low_freq_factor", 0.0);
  scaling.high_freq_factor = json.value("high_freq_factor", 0.0);
  scaling.beta_fast = json.value("beta_fast", 0.0);
  scaling.beta_slow = json.value("beta_slow", 0.0);
  scaling.original_max_position_embeddings = json.value("original_max_position_embeddings", 0);
  scaling.short_factors = json.value("short_factor", std::vector<double>());
  scaling.long_factors = json.value("long_factor", std::vector<double>());
}

// What only Llama and similar models have.
void read_llama(const Json& json, families::GptConfig& config) {
  config.num_query_groups = json.at("groups");
  config.kv_channels = json.at("head_size");
  config.normalization = json.at("norm") == "rms" ? spec::Normalization::kRmsNorm : spec::Normalization::kLayerNorm;
  config.add_bias_linear = json.at("bias");
  config.add_qkv_bias = json.at("qkv_bias");
  config.qk_layernorm = json.at("qk_norm");
  config.rotary_interleaved = json.at("interleaved");
  config.window_size = json.at("window");
  config.max_position_embeddings = json.value("max_positions", 0);
  read_rotary(json.at("rotary"), config);
}

families::GptConfig config_of(const Json& json) {
  families::GptConfig config;
  config.num_layers = json.at("num_layers");
  config.hidden_size = json.at("hidden");
  config.num_attention_heads = json.at("heads");
  config.kv_channels = config.hidden_size / config.num_attention_heads;
  config.ffn_hidden_size = json.at("ffn");
  config.vocab_size = config.padded_vocab_size = json.at("vocab");
  config.layernorm_epsilon = json.at("epsilon");
  config.tie_output = json.at("tied");
  config.residual_from_layernorm = json.value("residual_from_layernorm", false);
  config.activation = activation_of(json.at("activation"));
  config.hidden_dropout = config.attention_dropout = 0;
  config.embed_layernorm = json.at("family") == "bloom";
  config.position_embedding =
      config.embed_layernorm ? families::PositionEmbedding::kAlibi : families::PositionEmbedding::kLearned;
  if (json.contains("groups")) read_llama(json, config);
  return config;
}

at::Tensor read_tensor(const store::SafetensorsFile& file, const std::string& name) {
  const store::TensorEntry* entry = file.find(name);
  if (entry == nullptr) throw std::runtime_error("no tensor " + name);
  const at::ScalarType type = entry->dtype == store::DType::kBFloat16 ? at::kBFloat16 : at::kFloat;
  return at::from_blob(const_cast<uint8_t*>(file.data(*entry)), entry->shape, type)
      .to(at::kFloat, false, /*copy=*/true);
}

at::Tensor matrix(const Json& rows, at::ScalarType type) {
  const auto values = rows.get<std::vector<std::vector<double>>>();
  at::Tensor result =
      at::empty({static_cast<int64_t>(values.size()), static_cast<int64_t>(values[0].size())}, at::kDouble);
  for (size_t row = 0; row < values.size(); ++row)
    result[static_cast<int64_t>(row)].copy_(at::tensor(values[row], at::kDouble));
  return result.to(type);
}

// One row of a step: its sample number is its place.
tensor::Batch batch_of(const at::Tensor& text, const at::Tensor& loss_mask, int64_t number) {  // [1, s + 1], [1, s]
  const int64_t s = text.size(1) - 1;
  tensor::Batch batch;
  batch.sample_numbers = {number};
  batch.ids = text.narrow(1, 0, s).contiguous();
  batch.labels = text.narrow(1, 1, s).contiguous();
  batch.loss_mask = loss_mask;
  batch.positions = at::arange(s, at::kLong).unsqueeze(0);
  return batch;
}

class TransformersModel : public ::testing::TestWithParam<fs::path> {
 protected:
  TransformersModel() {
    for (tensor::Param& param : params.params()) param.value.copy_(read_tensor(file, "weight." + param.spec->name));
    params.zero_grad();
  }

  static families::GptConfig complete(const Json& json, const store::SafetensorsFile& file) {
    families::GptConfig config = config_of(json.at("config"));
    const store::TensorEntry* positions = file.find("weight.position_embeddings.weight");
    if (positions != nullptr) config.max_position_embeddings = positions->shape[0];
    return config;
  }

  at::Tensor text(size_t step) const { return matrix(json.at("texts").at(step), at::kLong); }  // [b, s + 1]

  // Rows are micro-batches of one, so gradients are accumulated.
  double run_step(size_t step) {
    const at::Tensor ids = text(step);
    std::vector<tensor::Batch> rows;
    for (int64_t row = 0; row < ids.size(0); ++row)
      rows.push_back(batch_of(ids.narrow(0, row, 1), mask.narrow(0, row, 1), row));
    const double count = mask.sum().item<double>();
    const auto totals =
        runner.train(plan::schedule_1f1b(1, 0, ids.size(0)), rows, [&](const pipeline::LossTerm&) { return 1 / count; })
            .totals();
    return totals.at(0).sum / totals.at(0).count;
  }

  // Logits of the ids after those of the cache (if any), [b, s, V].
  at::Tensor logits(const at::Tensor& ids, tensor::KeyValueCache* cache) {
    const int64_t begin = cache != nullptr ? cache->lengths[0] : 0;
    nn::ForwardContext context{.attention = model.attention_context()};
    context.attention.cache = cache;
    const at::Tensor positions = at::arange(begin, begin + ids.size(1), at::kLong).expand(ids.sizes()).contiguous();
    return model.logits(model.hidden_states(ids, positions, context)).transpose(0, 1);
  }

  void expect_logits(const at::Tensor& found, const at::Tensor& wanted, const std::string& what) const {
    const double bound = kLogitTolerance * std::max(1.0, wanted.abs().max().item<double>());
    ASSERT_EQ(found.sizes(), wanted.sizes()) << what;
    EXPECT_LE((found - wanted).abs().max().item<double>(), bound) << what;
  }

  Json json = Json::parse(std::ifstream(GetParam()));
  store::SafetensorsFile file{fs::path(GetParam()).replace_extension(".safetensors")};
  families::GptConfig config = complete(json, file);
  tensor::ParamSet params{families::gpt_params(config), {}, at::kFloat, true};
  models::GptModel model{nn::LayerBuilder{params, dist::single_process()}, config, {{}, 1}};
  pipeline::Runner runner{{&model}, dist::single_process().pipeline, params.grad_queue()};
  at::Tensor mask = matrix(json.at("loss_mask"), at::kFloat);  // [b, s]
};

TEST_P(TransformersModel, LogitsAreTransformers) {
  const at::Tensor ids = text(0);
  expect_logits(logits(ids.narrow(1, 0, ids.size(1) - 1).contiguous(), nullptr), read_tensor(file, "logits"), "logits");
}

TEST_P(TransformersModel, CachedLogitsAreTransformersAndTheUncachedOnes) {
  const at::Tensor ids = text(0).narrow(1, 0, mask.size(1)).contiguous(), wanted = read_tensor(file, "logits");
  tensor::KeyValueCache cache;
  cache.capacity = ids.size(1);
  cache.lengths.assign(static_cast<size_t>(ids.size(0)), 0);
  const auto part = [&] {
    return at::empty({ids.size(0), config.num_groups(), cache.capacity, config.kv_channels}, at::kFloat);
  };
  for (int64_t layer = 0; layer < config.num_layers; ++layer) cache.layers.push_back({part(), part(), {}});
  // A prompt of a third, a few positions at once, then one at a time.
  std::vector<at::Tensor> pieces;
  const std::vector<int64_t> first_pieces = {ids.size(1) / 3, ids.size(1) / 5};
  for (const int64_t length : first_pieces)
    if (length > 0) pieces.push_back(logits(ids.narrow(1, cache.lengths[0], length).contiguous(), &cache));
  while (cache.lengths[0] < ids.size(1))
    pieces.push_back(logits(ids.narrow(1, cache.lengths[0], 1).contiguous(), &cache));
  const at::Tensor cached = at::cat(pieces, 1);
  expect_logits(cached, wanted, "cached logits against transformers'");
  expect_logits(cached, logits(ids, nullptr), "cached logits against the uncached ones");
}

// As the engine runs it: all rows at once in pieces, in pages that are anywhere, next to a sequence that ends early.
// Sequences that may become long and those that may not have other rotary positions in one pass.
TEST_P(TransformersModel, LogitsInPagesAreTransformers) {
  constexpr int64_t kPageTokens = 8;
  tensor::ParamSet in_use(families::gpt_params(config), {}, at::kFloat, /*with_grad=*/false);
  for (size_t i = 0; i < params.params().size(); ++i) in_use.params()[i].value.copy_(params.params()[i].value);
  const models::GptModel decoder(nn::LayerBuilder{in_use, dist::single_process()}, config, {{}, 1});
  const int64_t rows = mask.size(0), s = mask.size(1), short_positions = decoder.decoder_shape().short_positions;
  const int64_t pages_of_row = (s + kPageTokens - 1) / kPageTokens;
  infer::DecoderModel batches(decoder, {at::kFloat},
                              {.page_tokens = kPageTokens, .num_pages = (rows + 1) * pages_of_row});

  const at::Tensor ids = text(0).narrow(1, 0, s).contiguous();
  const int64_t early_end = short_positions > 0 ? std::min(s / 2, short_positions) : s / 2;
  struct Sequence {
    std::vector<int32_t> ids, pages;
    bool is_long;
    at::Tensor wanted;  // [length, V]
  };
  std::vector<Sequence> all;
  for (int64_t row = 0; row <= rows; ++row) {
    const bool ends_early = row == rows;
    const at::Tensor own = ids.narrow(0, ends_early ? 0 : row, 1).narrow(1, 0, ends_early ? early_end : s).contiguous();
    const int64_t* const values = own.const_data_ptr<int64_t>();
    Sequence sequence{.ids = {values, values + own.size(1)},
                      .pages = {},
                      .is_long = short_positions > 0 && own.size(1) > short_positions,
                      .wanted = ends_early ? logits(own, nullptr)[0] : read_tensor(file, "logits")[row]};
    for (int64_t page = pages_of_row; page-- > 0;)
      sequence.pages.push_back(static_cast<int32_t>(page * (rows + 1) + row));
    all.push_back(std::move(sequence));
  }
  int64_t begin = 0;
  for (const int64_t piece : {s / 3, s / 5, int64_t{1}, s}) {
    std::vector<infer::TokenRun> runs;
    std::vector<at::Tensor> wanted;
    for (const Sequence& sequence : all) {
      const int64_t count = std::min(piece, static_cast<int64_t>(sequence.ids.size()) - begin);
      if (count <= 0) continue;
      runs.push_back({.ids = std::span(sequence.ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(count)),
                      .first_position = begin,
                      .pages = sequence.pages,
                      .num_logits = count,
                      .is_long = sequence.is_long});
      wanted.push_back(sequence.wanted.narrow(0, begin, count));
    }
    begin += piece;
    if (runs.empty()) continue;
    const at::Tensor expected = at::cat(wanted), found = at::empty_like(expected);
    batches.forward(runs, found.mutable_data_ptr<float>());
    expect_logits(found, expected, "logits in pages");
  }
}

TEST_P(TransformersModel, LossAndEveryGradientAreTransformers) {
  EXPECT_NEAR(run_step(0), json.at("losses").at(0).get<double>(), kLossTolerance);
  const double total = json.at("grad_norms").at(0);
  for (tensor::Param& param : params.params()) {
    const std::string& name = param.spec->name;
    at::Tensor found = param.grad.to(at::kDouble), wanted = read_tensor(file, "grad." + name).to(at::kDouble);
    if (name.ends_with("query_key_value.bias") && config.position_embedding != families::PositionEmbedding::kRotary) {
      // Softmax does not see a shift of all scores of a query, so a key's bias that is not rotated has no gradient.
      const std::vector<int64_t> by_head = {config.num_attention_heads, 3, config.kv_channels};
      found = found.view(by_head), wanted = wanted.view(by_head);
      EXPECT_LE(found.select(1, 1).norm().item<double>(), kZeroTolerance * total) << name << ", keys";
      found = at::stack({found.select(1, 0), found.select(1, 2)}),
      wanted = at::stack({wanted.select(1, 0), wanted.select(1, 2)});
    }
    EXPECT_LE((found - wanted).norm().item<double>(), kGradientTolerance * wanted.norm().item<double>()) << name;
  }
}

TEST_P(TransformersModel, FiveStepsOfAdamHaveTransformersLossesAndNorms) {
  const Json& settings = json.at("optimizer");
  optim::Optimizer optimizer(params,
                             {.settings = {.adam_beta1 = settings.at("betas").at(0),
                                           .adam_beta2 = settings.at("betas").at(1),
                                           .adam_eps = settings.at("eps"),
                                           .weight_decay = settings.at("weight_decay")},
                              .clip_grad = settings.at("clip")},
                             dist::single_process());
  for (size_t step = 0; step < 5; ++step) {
    params.zero_grad();
    EXPECT_NEAR(run_step(step), json.at("losses").at(step).get<double>(), kLossTolerance) << "step " << step + 1;
    const double norm = json.at("grad_norms").at(step);
    EXPECT_NEAR(*optimizer.step(settings.at("lr"), 1.0).grad_norm, norm, kGradientTolerance * norm)
        << "step " << step + 1;
  }
  EXPECT_NEAR(run_step(0), json.at("losses").at(5).get<double>(), kLossTolerance) << "after the last step";
}

TEST_P(TransformersModel, GreedyContinuationsAreTransformers) {
  std::vector<std::vector<int32_t>> prompts;
  for (const Json& entry : json.at("greedy")) prompts.push_back(entry.at("prompt"));
  infer::GenerateConfig settings;
  settings.sampling.top_k = 1;
  settings.tokens_to_generate = static_cast<int64_t>(json.at("greedy").at(0).at("continuation").size());
  // One batch: the shorter prompts are padded there, and were not in transformers.
  const auto results = infer::generate(model, at::kFloat, prompts, settings);
  for (size_t row = 0; row < prompts.size(); ++row)
    EXPECT_EQ(results[row].generated_ids, json.at("greedy").at(row).at("continuation").get<std::vector<int32_t>>())
        << "prompt of " << prompts[row].size();
}

INSTANTIATE_TEST_SUITE_P(Models, TransformersModel, ::testing::ValuesIn(cases()), [](const auto& info) {
  return std::to_string(info.index) + "_" + info.param.stem().string();
});

}  // namespace transformers_test
}  // namespace espalier
