// The loss of drawn labels, and Sophia-G's estimate from it against the exact diagonal that it estimates.
#include "nn/output_layer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

namespace espalier::nn {
namespace output_layer_test {

constexpr int64_t kLength = 6, kBatch = 2, kHidden = 5, kRows = 7;
const std::vector<int64_t> kSamples = {3, 11};

struct Layer {
  explicit Layer(double z_loss = 0) : set(specs(), {}, at::kFloat, true) {
    set.initialize(/*seed=*/5, [](tensor::Param&, const at::Tensor&) {});
    set.zero_grad();
    layer.emplace(LayerBuilder{.params = set, .grid = dist::single_process(), .z_loss = z_loss}, "words");
  }
  static std::vector<spec::ParamSpec> specs() {
    spec::ParamSpec spec;
    spec.name = "words.weight";
    spec.shape = {kRows, kHidden};
    spec.tensor_placement = spec::Placement::split(0, {kRows});
    spec.init = spec::Init::normal(0.7);
    return {spec};
  }
  tensor::ParamSet set;
  std::optional<OutputLayer> layer;
};

at::Tensor hidden() {
  return at::randn({kLength, kBatch, kHidden}, at::detail::createCPUGenerator(1),
                   at::TensorOptions().dtype(at::kFloat));
}
kernels::DrawSite site(uint64_t seed) {
  return {.key = tensor::philox_key(seed, "labels"), .sample_numbers = &kSamples, .first_position = 0};
}

TEST(DrawnLabels, HaveTheLossOfThoseLabelsWithoutAZLoss) {
  Layer with_z(0.1), plain;
  const at::Tensor mask = at::ones({kLength, kBatch});
  mask[2][1] = 0;
  const at::Tensor x = hidden().requires_grad_(), same = hidden().requires_grad_();
  const at::Tensor labels = kernels::draw_labels(plain.layer->logits(hidden()), 0, site(4)).rows;
  const OutputLayer::Losses drawn = with_z.layer->loss_of_drawn_labels(x, site(4), mask),
                            given = plain.layer->loss(same, labels, mask);
  EXPECT_FALSE(drawn.z_sum.defined());
  EXPECT_TRUE(at::equal(drawn.per_token, given.per_token));
  torch::autograd::backward({drawn.sum}, {});
  torch::autograd::backward({given.sum}, {});
  EXPECT_TRUE(at::equal(x.grad(), same.grad()));
  EXPECT_TRUE(at::equal(with_z.set.params()[0].grad, plain.set.params()[0].grad));
}

// Bartlett's second identity: over draws, n times the square of the mean gradient has the Hessian's diagonal as its
// mean, which for an output layer is the mean over tokens of p (1 - p) x^2.
TEST(DrawnLabels, SquaresOfTheirGradientsAreTheCurvatureInTheMean) {
  Layer one;
  const at::Tensor x = hidden(), mask = at::ones({kLength, kBatch});
  const at::Tensor p = at::softmax(one.layer->logits(x), 2).view({-1, kRows}), rows = x.view({-1, kHidden});
  const at::Tensor exact = at::mm((p * (1 - p)).t(), rows.square()) / rows.size(0);
  constexpr int64_t kDraws = 4000;
  const double tokens = kLength * kBatch;
  at::Tensor mean = at::zeros_like(exact);
  for (int64_t seed = 0; seed < kDraws; ++seed) {
    one.set.zero_grad();
    const at::Tensor leaf = x.clone().requires_grad_();
    torch::autograd::backward({one.layer->loss_of_drawn_labels(leaf, site(static_cast<uint64_t>(seed)), mask).sum},
                              {at::full({}, 1 / tokens)});
    mean += tokens * one.set.params()[0].grad.square() / kDraws;
  }
  // Of a square of a sum of 12 the standard deviation is about 1.4 times its mean: 2.2 % of a mean of 4,000.
  EXPECT_LT(((mean - exact) / exact).abs().max().item<double>(), 0.12);
  EXPECT_LT(((mean - exact).norm() / exact.norm()).item<double>(), 0.04);
}

}  // namespace output_layer_test
}  // namespace espalier::nn
