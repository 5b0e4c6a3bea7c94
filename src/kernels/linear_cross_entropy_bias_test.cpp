// The bias of linear_cross_entropy: as a column of the weight that meets a column of ones in x.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "base/cpu_isa.h"
#include "kernels/linear_cross_entropy.h"
#include "kernels/reference_test.h"

namespace espalier::kernels {
namespace linear_cross_entropy_bias_test {

using reference::expect_within;
using reference::random;
using reference::rounding;
using reference::TestParam;
using Mode = tensor::GradQueue::Mode;

struct Sizes {
  int64_t tokens, hidden, vocabulary;
};

at::Tensor in_double(const at::Tensor& x) { return x.detach().to(at::kDouble).clone().requires_grad_(true); }

// By autograd in double; logits are rounded to the compute type, which is a constant shift for autograd.
void expect_gradients(const Sizes& size, at::ScalarType type, Mode mode) {
  TestParam weight(random({size.vocabulary, size.hidden}, type, 1)), bias(random({size.vocabulary}, type, 2));
  const at::Tensor x = random({size.tokens, size.hidden}, type, 3, 0.3).requires_grad_(true);
  const at::Tensor labels = at::arange(size.tokens, at::kLong).mul(13).remainder(size.vocabulary);
  const at::Tensor mask = at::ones({size.tokens}, at::kFloat);
  if (size.tokens > 2) mask[2] = 0;
  tensor::GradQueue queue;
  queue.set_mode(mode);
  const TokenLosses found = linear_cross_entropy(x, weight.param, {labels, mask}, queue, {}, {.bias = &bias.param});
  found.sum.backward();
  queue.drain();

  const at::Tensor x64 = in_double(x), w64 = in_double(weight.param.value), b64 = in_double(bias.param.value);
  const at::Tensor exact = x64.mm(w64.t()) + b64;
  const at::Tensor logits = exact + (exact.detach().to(type).to(at::kDouble) - exact.detach());
  const at::Tensor losses = -at::log_softmax(logits, 1).gather(1, labels.unsqueeze(1)).squeeze(1);
  (losses * mask).sum().backward();

  const double unit = rounding(type), relative = type == at::kFloat ? 1e-5 : 6 * unit;
  // A logit that rounds to the neighbour of the exact one's rounding moves the loss by up to one unit.
  const at::Tensor slack = logits.detach().abs().amax({1}) * (2 * unit * (type == at::kFloat ? 16 : 1)) + 1e-6;
  expect_within(found.per_token, losses, slack, "losses");
  const auto bound = [&](const at::Tensor& wanted) {
    return at::full({1}, relative * wanted.norm().item<double>() + 1e-6, at::kDouble);
  };
  expect_within(x.grad(), x64.grad(), bound(x64.grad()), "dx");
  expect_within(weight.added(), w64.grad(), bound(w64.grad()), "dW");
  expect_within(bias.added(), b64.grad(), bound(b64.grad()), "db");
}

class LinearCrossEntropyBias : public testing::TestWithParam<std::tuple<at::ScalarType, Mode>> {};

TEST_P(LinearCrossEntropyBias, LossAndGradientsMatchDoubleAutograd) {
  const auto [type, mode] = GetParam();
  for (const CpuIsa isa : reference::instruction_sets()) {
    const ForceCpuIsa force(isa);
    for (const Sizes& size : {Sizes{1, 1, 2}, {7, 7, 33}, {33, 33, 129}, {259, 64, 1031}, {300, 40, 4130}}) {
      SCOPED_TRACE(cpu_isa_name(isa));
      expect_gradients(size, type, mode);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, LinearCrossEntropyBias,
                         testing::Combine(testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                                          testing::Values(Mode::kImmediate, Mode::kDeferred)));

}  // namespace linear_cross_entropy_bias_test
}  // namespace espalier::kernels
