// A small BLOOM with the weights, the batch, the gradients and the training trace that Megatron-DeepSpeed's own code
// produced (tests/data/megatron-oracle/README.md). float32; ten times the distance of Megatron's own float32 from its
// float64 is the bound, as model.json gives it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/gpt/model.h"
#include "optim/optimizer.h"
#include "pipeline/runner.h"
#include "store/safetensors.h"
#include "tests/support/npy.h"

namespace espalier {
namespace {

const std::string kFolder = "tests/data/megatron-oracle/model/";
constexpr int64_t kSequence = 64;

families::GptConfig oracle_config(int64_t padded_vocab_size) {
  families::GptConfig config;
  config.num_layers = 2;
  config.hidden_size = 64;
  config.ffn_hidden_size = 256;
  config.num_attention_heads = 4;
  config.kv_channels = 16;
  config.max_position_embeddings = kSequence;
  config.vocab_size = config.padded_vocab_size = padded_vocab_size;
  config.position_embedding = families::PositionEmbedding::kAlibi;
  config.embed_layernorm = true;
  config.hidden_dropout = config.attention_dropout = 0;
  return config;
}

std::string megatron_name(const std::string& name) {
  const bool embedding = name.starts_with("word_embeddings");
  return "language_model." + std::string(embedding ? "embedding." : "encoder.") + name;
}

at::Tensor read_tensor(const store::SafetensorsFile& file, const std::string& name) {
  const store::TensorEntry* entry = file.find(name);
  EXPECT_NE(entry, nullptr) << name;
  return at::from_blob(const_cast<uint8_t*>(file.data(*entry)), entry->shape, at::kFloat).clone();
}

at::Tensor tensor_of(const test::Npy& npy, at::ScalarType type) {
  const auto values = npy.as<double>();
  return at::tensor(values, at::kDouble).view(npy.shape).to(type);
}

tensor::Batch batch_of(const at::Tensor& text, const at::Tensor& loss_mask) {  // text: [b, s + 1] int64
  tensor::Batch batch;
  const int64_t b = text.size(0), s = text.size(1) - 1;
  for (int64_t row = 0; row < b; ++row) batch.sample_numbers.push_back(row);
  batch.ids = text.narrow(1, 0, s).contiguous();
  batch.labels = text.narrow(1, 1, s).contiguous();
  batch.loss_mask = loss_mask;
  batch.positions = at::arange(s, at::kLong).expand({b, s}).contiguous();
  return batch;
}

struct OracleModel {
  OracleModel(const std::string& weights, int64_t vocabulary)
      : config(oracle_config(vocabulary)),
        params(families::gpt_params(config), {}, at::kFloat, true),
        model(nn::LayerBuilder{params, dist::single_process()}, config, {{}, 1}) {
    const store::SafetensorsFile file(kFolder + weights);
    for (tensor::Param& param : params.params()) param.value.copy_(read_tensor(file, megatron_name(param.spec->name)));
  }
  families::GptConfig config;
  tensor::ParamSet params;
  models::GptModel model;
  pipeline::Runner runner{{&model}, dist::single_process().pipeline, params.grad_queue()};
};

double largest_difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

class MegatronModel : public ::testing::Test {
 protected:
  OracleModel oracle{"weights.safetensors", 512};
  store::SafetensorsFile expected{kFolder + "out_default.safetensors"};
  tensor::Batch batch = batch_of(tensor_of(test::read_npy(kFolder + "batch/text.npy"), at::kLong),
                                 tensor_of(test::read_npy(kFolder + "batch/loss_mask.npy"), at::kFloat));
};

TEST_F(MegatronModel, LogitsEqualMegatronsWithinTenTimesItsOwnRounding) {
  const nn::ForwardContext context{.attention = oracle.model.attention_context(),
                                   .sample_numbers = &batch.sample_numbers};
  const at::Tensor logits = oracle.model.logits(oracle.model.hidden_states(batch.ids, batch.positions, context));
  EXPECT_LE(largest_difference(logits.transpose(0, 1), read_tensor(expected, "logits")), 10 * 1.6294917886128246e-06);
}

TEST_F(MegatronModel, LossAndEveryGradientEqualMegatrons) {
  const double count = batch.loss_mask.sum().item<double>();
  const auto totals = oracle.runner
                          .train({{plan::Action::Kind::kForward, 0}, {plan::Action::Kind::kBackward, 0}}, {batch},
                                 [&](const pipeline::LossTerm&) { return 1 / count; })
                          .totals();
  EXPECT_NEAR(totals[0].sum / totals[0].count, 6.669840458532861, 10 * 6.9e-7);
  for (tensor::Param& param : oracle.params.params()) {
    at::Tensor gradient = param.grad, wanted = read_tensor(expected, "grad." + megatron_name(param.spec->name));
    const double bound = 10 * 7.005074023858975e-07 * wanted.abs().max().item<double>();
    EXPECT_LE(largest_difference(gradient, wanted), bound) << param.spec->name;
  }
}

// 160 samples of 65 ids in the order of training: what `data sample` gives for owt_text_document with --seq-length 64
// --seed 77 --split 949,50,1 (tests/oracle/make_train_samples.py).
at::Tensor train_samples() { return tensor_of(test::read_npy(kFolder + "train_samples.npy"), at::kLong); }

TEST(MegatronTraining, TwentyStepsHaveMegatronsLossesAndNorms) {
  OracleModel oracle("train_initial.safetensors", 5120);
  optim::Optimizer optimizer(
      oracle.params,
      {.settings = {.adam_beta1 = 0.9, .adam_beta2 = 0.95, .adam_eps = 1e-8, .weight_decay = 0.1}, .clip_grad = 1.0},
      dist::single_process());
  const auto trace = nlohmann::json::parse(std::ifstream(kFolder + "train.json"));
  const at::Tensor samples = train_samples();
  const double nominal_tokens = 8 * kSequence;
  for (size_t step = 0; step < 20; ++step) {
    std::vector<tensor::Batch> micro_batches;
    for (int64_t m = 0; m < 4; ++m)
      micro_batches.push_back(
          batch_of(samples.narrow(0, static_cast<int64_t>(step) * 8 + m * 2, 2), at::ones({2, kSequence})));
    oracle.params.zero_grad();
    const auto totals = oracle.runner
                            .train(plan::schedule_1f1b(1, 0, 4), micro_batches,
                                   [&](const pipeline::LossTerm&) { return 1 / nominal_tokens; })
                            .totals();
    const auto& row = trace.at("rows").at(step);
    const auto& exact = trace.at("float64").at("rows").at(step);
    const optim::StepResult result = optimizer.step(std::stod(row.at(4).get<std::string>()), 1.0);
    EXPECT_NEAR(totals[0].sum / totals[0].count, std::stod(exact.at(1).get<std::string>()), 10 * 1.2e-6)
        << "step " << step + 1;
    const double norm = std::stod(exact.at(2).get<std::string>());
    EXPECT_NEAR(*result.grad_norm, norm, 10 * 2.4e-7 * norm) << "step " << step + 1;
  }
  for (tensor::Param& param : oracle.params.params()) {
    if (param.spec->name.ends_with("query_key_value.bias")) continue;  // its key rows have a gradient of pure rounding
    const auto& final = trace.at("final").at(megatron_name(param.spec->name));
    const double norm = std::stod(final.at("norm").get<std::string>());
    EXPECT_NEAR(param.value.to(at::kDouble).norm().item<double>(), norm, 1e-5 * norm) << param.spec->name;
    for (int64_t element = 0; element < 3; ++element)
      EXPECT_NEAR(param.value.flatten()[element].item<double>(),
                  std::stod(final.at("first").at(element).get<std::string>()), 1e-5)
          << param.spec->name << " element " << element;
  }
}

}  // namespace
}  // namespace espalier
