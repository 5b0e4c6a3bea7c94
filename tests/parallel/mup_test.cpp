// The coordinate check of muP (Yang et al. 2022, appendix D.1): after some steps the size of every activation is the
// same for all widths.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/gpt/batch.h"
#include "models/gpt/plain_gpt_test.h"
#include "optim/optimizer.h"
#include "pipeline/runner.h"
#include "tests/support/long_version.h"

namespace espalier::test {
namespace mup_test {

constexpr int64_t kBaseWidth = 128, kHeadSize = 32, kVocabulary = 64, kLength = 16, kRows = 8, kSteps = 10;

enum class Rule { kStandard, kMup, kMupWithOutputOfZeros };

families::GptConfig config_of(int64_t width, Rule rule) {
  families::GptConfig config;
  config.num_layers = 2;
  config.hidden_size = width;
  config.ffn_hidden_size = 4 * width;
  config.num_attention_heads = width / kHeadSize;
  config.kv_channels = kHeadSize;
  config.max_position_embeddings = kLength;
  config.vocab_size = config.padded_vocab_size = kVocabulary;
  config.hidden_dropout = config.attention_dropout = 0;
  config.init_method_std = 0.08;
  if (rule != Rule::kStandard) config.mup = {.mup = true, .mup_base_hidden_size = kBaseWidth};
  config.tie_output = rule != Rule::kMupWithOutputOfZeros;
  return config;
}

// Rows that count on in steps of 3.
tensor::Batch batch_of(int64_t step) {
  std::vector<models::SampleRow> rows;
  for (int64_t row = 0; row < kRows; ++row) {
    std::vector<int64_t> ids;
    for (int64_t at = 0; at <= kLength; ++at) ids.push_back((step * 7 + row * 11 + at * 3) % (kVocabulary - 1));
    rows.push_back({step * kRows + row, {{ids}, 0}});
  }
  data::RowRules rules;
  rules.text = {.eod = kVocabulary - 1};
  return models::make_gpt_batch(rows, rules);
}

// What each layer's attention and MLP add to the stream, and the logits.
std::vector<at::Tensor> outputs(const families::GptConfig& config, tensor::ParamSet& params) {
  const at::NoGradGuard no_grad;
  const models::plain_gpt::PlainGpt plain(config, params);
  const tensor::Batch batch = batch_of(kSteps);
  std::vector<at::Tensor> added;
  const at::Tensor visible = at::ones({kRows, kLength, kLength}, at::kBool).tril();
  added.push_back(plain.logits(batch.ids, batch.positions, visible, &added));
  return added;
}

// log2 of the root mean square of what each layer adds to the stream, and of the change of the logits.
std::vector<double> sizes_after_training(int64_t width, Rule rule, uint64_t seed) {
  const families::GptConfig config = config_of(width, rule);
  tensor::ParamSet params(families::gpt_params(config), {}, at::kFloat, true);
  models::GptModel model(nn::LayerBuilder{params, dist::single_process()}, config, {});
  optim::Optimizer optimizer(params, {.settings = {.weight_decay = 0}, .clip_grad = 0});
  at::Generator generator = at::detail::createCPUGenerator(seed);
  for (tensor::Param& param : params.params()) {
    const spec::Init& init = param.spec->init;
    const bool is_output = param.spec->name == "lm_head.weight";
    optimizer.set_master(param, init.kind == spec::Init::Kind::kNormal && !is_output
                                    ? at::randn(param.spec->shape, generator, at::kFloat) * init.value
                                    : at::full(param.spec->shape, is_output ? 0 : init.value));
  }
  const std::vector<at::Tensor> before = outputs(config, params);
  pipeline::Runner runner({&model}, dist::single_process().pipeline, params.grad_queue());
  for (int64_t step = 0; step < kSteps; ++step) {
    for (tensor::Param& param : params.params()) param.grad.zero_();
    const tensor::Batch batch = batch_of(step);
    runner.train({{plan::Action::Kind::kForward, 0}, {plan::Action::Kind::kBackward, 0}}, {batch},
                 [](const pipeline::LossTerm&) { return 1.0 / (kRows * kLength); });
    optimizer.step(1e-3, 1);
  }
  std::vector<at::Tensor> after = outputs(config, params);
  after.back() = after.back() - before.back();
  std::vector<double> sizes;
  for (const at::Tensor& one : after) sizes.push_back(std::log2(one.square().mean().sqrt().item<double>()));
  return sizes;
}

// Of each size, by least squares over the binary logarithm of the width.
std::vector<double> slopes(Rule rule, const std::vector<int64_t>& widths, uint64_t num_seeds) {
  std::vector<double> slopes;
  double squares = 0;
  for (size_t at = 0; at < widths.size(); ++at) {
    const double x = static_cast<double>(at) - static_cast<double>(widths.size() - 1) / 2;  // about their mean
    squares += x * x;
    for (uint64_t seed = 1; seed <= num_seeds; ++seed) {
      const std::vector<double> sizes = sizes_after_training(widths[at], rule, seed);
      slopes.resize(sizes.size());
      for (size_t i = 0; i < sizes.size(); ++i) slopes[i] += x * sizes[i] / static_cast<double>(num_seeds);
    }
  }
  for (double& slope : slopes) slope /= squares;
  return slopes;
}

TEST(Mup, ActivationsHaveTheSameSizeAtEveryWidth) {
  const auto widths = in_suite_or_all<std::vector<int64_t>>({128, 256, 512}, {128, 256, 512, 1024});
  const std::vector<double> with = slopes(Rule::kMup, widths, 2), without = slopes(Rule::kStandard, widths, 2);
  for (size_t i = 0; i < with.size(); ++i) {
    const bool is_logits = i + 1 == with.size();
    std::printf("%s %zu: slope %.3f, without muP %.3f\n", is_logits ? "logits" : "activation", i, with[i], without[i]);
    // Of logits the random part of the first output layer fades with the width, and with it a part of the change.
    EXPECT_LE(std::abs(with[i]), is_logits ? 0.2 : 0.05) << i;
    EXPECT_GT(without[i], 0.3) << i;  // the check sees what it is for
  }
}

// Without that random part, where it is largest to see: an output layer of its own that begins as zeros. What is left
// of a slope is of the narrowest model, whose 128 random numbers for each of 64 words are not quite orthogonal.
TEST(Mup, LogitsDoOnceTheirRandomPartIsGone) {
  const std::vector<double> all = slopes(Rule::kMupWithOutputOfZeros, {128, 256, 512, 1024}, 2);
  std::printf("logits: slope %.3f\n", all.back());
  for (size_t i = 0; i + 1 < all.size(); ++i) EXPECT_LE(std::abs(all[i]), 0.05) << i;
  EXPECT_LE(std::abs(all.back()), 0.1);
  if (!long_version()) return;
  const std::vector<double> wide = slopes(Rule::kMupWithOutputOfZeros, {256, 512, 1024}, 4);
  std::printf("from 256 on %.3f\n", wide.back());
  EXPECT_LE(std::abs(wide.back()), 0.05);
}

}  // namespace mup_test
}  // namespace espalier::test
