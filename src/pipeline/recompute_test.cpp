#include "pipeline/recompute.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "dist/grid.h"

namespace espalier::pipeline {
namespace recompute_test {

TEST(RunLayers, RecomputedGradientEqualsTheKeptOneBitForBit) {
  const LayerFunction layer = [](int64_t number, const at::Tensor& x, const std::vector<at::Tensor>&) {
    return at::tanh(x * (number + 1.5)) + x;
  };
  const at::Tensor start = at::linspace(-1, 1, 33);
  at::Tensor results[2], gradients[2];
  for (const bool recompute : {false, true}) {
    at::Tensor x = start.clone().requires_grad_(true);
    const at::Tensor y = run_layers({0, 3, recompute}, x, layer, dist::single_process().tensor);
    torch::autograd::backward({y}, {at::linspace(0.5, 2, 33)});
    results[recompute] = y.detach();
    gradients[recompute] = x.grad();
  }
  EXPECT_TRUE(at::equal(results[0], results[1]));
  EXPECT_TRUE(at::equal(gradients[0], gradients[1]));
}

TEST(RunLayers, RunsEachLayerTwiceWhenRecomputing) {
  int runs = 0;
  const LayerFunction layer = [&](int64_t, const at::Tensor& x, const auto&) { return ++runs, x * 2; };
  at::Tensor x = at::ones({7}).requires_grad_(true);
  const at::Tensor y = run_layers({0, 4, true}, x, layer, dist::single_process().tensor);
  EXPECT_EQ(runs, 4);
  torch::autograd::backward({y}, {at::ones({7})});
  EXPECT_EQ(runs, 8);
  EXPECT_TRUE(at::equal(x.grad(), at::full({7}, 16)));
}

// y = x * a^4 * b, by layers that multiply by a, the first by b as well.
TEST(RunLayers, GradientsReachWhatAllLayersReadBesides) {
  const LayerFunction layer = [](int64_t number, const at::Tensor& x, const std::vector<at::Tensor>& beside) {
    return number == 0 ? x * beside[0] * beside[1] : x * beside[0];
  };
  for (const bool recompute : {false, true}) {
    const at::Tensor x = at::full({1}, 3.0).requires_grad_(true), a = at::full({1}, 2.0).requires_grad_(true);
    const at::Tensor b = at::full({1}, 5.0).requires_grad_(true);
    at::Tensor y = x;
    for (const plan::LayerRange& range : {plan::LayerRange{0, 2, recompute}, {2, 4, recompute}})
      y = run_layers(range, y, layer, dist::single_process().tensor, {a, b});
    torch::autograd::backward({y}, {at::ones({1})});
    EXPECT_EQ(y.item<float>(), 3 * 16 * 5);
    EXPECT_EQ(x.grad().item<float>(), 16 * 5);
    EXPECT_EQ(a.grad().item<float>(), 3 * 4 * 8 * 5);
    EXPECT_EQ(b.grad().item<float>(), 3 * 16);
  }
}

}  // namespace recompute_test
}  // namespace espalier::pipeline
