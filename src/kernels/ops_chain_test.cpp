#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/bias_gelu.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/layer_norm.h"
#include "kernels/adam.h"

namespace espalier::kernels::ops_chain_test {
tensor::Param param(at::Tensor v) { return {nullptr, v, at::zeros(v.sizes(), at::kFloat)}; }
TEST(Ops, ChainGivesGradientsOfAten) {
  at::manual_seed(1);
  tensor::GradQueue queue;
  auto table = param(at::randn({11, 7})), w = param(at::randn({7})), b = param(at::randn({7})), bb = param(at::randn({7})), bg = param(at::randn({7}));
  auto ids = at::randint(0, 11, {2, 3}, at::kLong);
  std::vector<int64_t> samples = {5, 6};
  DropoutSite none;
  auto e = embedding(ids, table, queue);
  ASSERT_TRUE(e.requires_grad());
  auto n = layer_norm(e, w, b, 1e-5, queue);
  auto g = bias_gelu(n, bg, spec::Activation::kGeluTanh, queue);
  auto y = bias_dropout_add(g, &bb, e, none, queue);
  y.pow(2).sum().backward();
  auto T = table.value.clone().requires_grad_(), W = w.value.clone().requires_grad_(), B = b.value.clone().requires_grad_(),
       BB = bb.value.clone().requires_grad_(), BG = bg.value.clone().requires_grad_();
  auto E = at::embedding(T, ids.t());
  auto Y = at::gelu(at::layer_norm(E, {7}, W, B, 1e-5) + BG, "tanh") + BB + E;
  EXPECT_LT((y - Y).abs().max().item<float>(), 1e-5);
  Y.pow(2).sum().backward();
  EXPECT_LT((table.grad - T.grad()).abs().max().item<float>(), 1e-4);
  EXPECT_LT((w.grad - W.grad()).abs().max().item<float>(), 1e-4);
  EXPECT_LT((b.grad - B.grad()).abs().max().item<float>(), 1e-4);
  EXPECT_LT((bb.grad - BB.grad()).abs().max().item<float>(), 1e-4);
  EXPECT_LT((bg.grad - BG.grad()).abs().max().item<float>(), 1e-4);
  DropoutSite site{0.25, {{1, 2}}, &samples};
  auto x = at::ones({50, 2, 32}, at::kBFloat16).requires_grad_();
  auto d = dropout(x, site);
  d.sum().backward();
  EXPECT_TRUE(at::equal(d.detach(), x.grad()));
  EXPECT_NEAR((d == 0).to(at::kFloat).mean().item<float>(), 0.25, 0.03);
  at::NoGradGuard guard;
  EXPECT_FALSE(embedding(ids, table, queue).requires_grad());
}
}
