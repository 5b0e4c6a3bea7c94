#include "optim/qk_clip.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "optim/optimizer.h"

namespace espalier::optim {
namespace qk_clip_test {

constexpr int64_t kGroups = 3, kQueries = 2, kHead = 7, kRows = kGroups * (kQueries + 2) * kHead, kColumns = 5;
constexpr float kNone = -std::numeric_limits<float>::infinity();

struct Layer {
  explicit Layer(at::ScalarType type) : params(specs(), {}, type, true) {
    maxima.add({.weight = &params.at("qkv.weight"),
                .bias = &params.at("qkv.bias"),
                .queries = kQueries,
                .head_size = kHead,
                .largest = at::zeros({kGroups * kQueries})});
  }
  static std::vector<spec::ParamSpec> specs() {
    return {{.name = "qkv.weight", .shape = {kRows, kColumns}}, {.name = "qkv.bias", .shape = {kRows}}};
  }
  // A step whose update moves nothing: what is left is the clip.
  StepResult step(const at::Tensor& logits, Optimizer& optimizer) {
    maxima.entries()[0].largest.copy_(logits);
    for (tensor::Param& param : params.params()) param.grad.zero_();
    return optimizer.step(0.1, 1);
  }

  tensor::ParamSet params;
  tensor::LogitMaxima maxima;
};

OptimizerConfig config_of(double threshold, double alpha) {
  OptimizerConfig config{.settings = {.optimizer = spec::OptimizerType::kSgd, .sgd_momentum = 0, .weight_decay = 0},
                         .clip_grad = 0};
  config.settings.qk_clip_threshold = threshold, config.settings.qk_clip_alpha = alpha;
  return config;
}

TEST(QkClip, MultipliesTheRowsOfGroupsThatWereAboveTheThreshold) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    Layer layer(type);
    Optimizer optimizer(layer.params, config_of(50, 0.25), dist::single_process(), nullptr, &layer.maxima);
    at::manual_seed(1);
    std::vector<at::Tensor> before;  // of the weight and the bias
    for (tensor::Param& param : layer.params.params()) {
      before.push_back(at::randn(param.spec->shape));
      optimizer.set_master(param, before.back());
    }
    // The second group's largest is that of its second head; the third has seen nothing.
    const StepResult result = layer.step(at::tensor({49.0F, 50.0F, 3.0F, 800.0F, kNone, kNone}), optimizer);
    EXPECT_EQ(result.max_logit, 800);
    for (size_t at = 0; at < before.size(); ++at) {
      at::Tensor expected = before[at].to(at::kDouble).clone();
      for (int64_t row = 0; row < kRows; ++row) {
        const int64_t group = row / ((kQueries + 2) * kHead), head = row % ((kQueries + 2) * kHead) / kHead;
        if (group != 1 || head > kQueries) continue;
        expected[row].mul_(std::pow(50.0 / 800, head == kQueries ? 0.75 : 0.25));
      }
      const double unit = type == at::kFloat ? 1e-6 : 0x1p-8;
      EXPECT_TRUE(at::allclose(layer.params.params()[at].value.to(at::kDouble), expected, unit, 0))
          << type << " " << at;
    }
  }
}

TEST(QkClip, BringsTheLargestLogitToTheThreshold) {
  Layer layer(at::kFloat);
  Optimizer optimizer(layer.params, config_of(0.75, 0.5), dist::single_process(), nullptr, &layer.maxima);
  at::manual_seed(2);
  for (tensor::Param& param : layer.params.params()) optimizer.set_master(param, at::randn(param.spec->shape));
  const at::Tensor inputs = at::randn({33, kColumns});
  const auto logits = [&] {
    const at::Tensor qkv =
        at::matmul(inputs, layer.params.at("qkv.weight").value.t()) + layer.params.at("qkv.bias").value;
    const at::Tensor parts = qkv.view({33, kGroups, kQueries + 2, kHead});
    const at::Tensor queries = parts.narrow(2, 0, kQueries).permute({1, 2, 0, 3}), keys = parts.select(2, kQueries);
    return at::matmul(queries, keys.permute({1, 2, 0}).unsqueeze(1)).amax(at::IntArrayRef{2, 3}).view({-1});
  };
  ASSERT_GT(logits().min().item<double>(), 0.75);
  layer.step(logits(), optimizer);
  const at::Tensor after = logits().view({kGroups, kQueries}).amax(1);
  for (int64_t group = 0; group < kGroups; ++group) EXPECT_NEAR(after[group].item<double>(), 0.75, 1e-5) << group;
}

TEST(QkClip, LeavesWeightsAloneBelowTheThreshold) {
  Layer layer(at::kFloat);
  Optimizer optimizer(layer.params, config_of(100, 0.5), dist::single_process(), nullptr, &layer.maxima);
  at::manual_seed(3);
  const at::Tensor weight = at::randn({kRows, kColumns});
  optimizer.set_master(layer.params.at("qkv.weight"), weight);
  EXPECT_EQ(*layer.step(at::full({kGroups * kQueries}, 100.0F), optimizer).max_logit, 100);
  EXPECT_TRUE(at::equal(layer.params.at("qkv.weight").value, weight));
}

}  // namespace qk_clip_test
}  // namespace espalier::optim
