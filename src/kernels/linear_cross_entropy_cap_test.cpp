// Capped logits, c tanh(logits / c): loss and gradients against autograd in double, alone and with bias and z-loss, of
// the whole vocabulary and of shards of it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "base/cpu_isa.h"
#include "kernels/linear_cross_entropy.h"
#include "kernels/reference_test.h"

namespace espalier::kernels {
namespace linear_cross_entropy_cap_test {

using reference::random;
using reference::rounding;
using reference::TestParam;
using Mode = tensor::GradQueue::Mode;

constexpr double kZLoss = 0.02;

struct Sizes {
  int64_t tokens, hidden, vocabulary;
  double cap;
};

at::Tensor in_double(const at::Tensor& x) { return x.detach().to(at::kDouble).clone().requires_grad_(true); }

// `terms`: the sums of the absolute values of what is added up.
void expect_near(const at::Tensor& found, const at::Tensor& wanted, const at::Tensor& terms, double relative,
                 const char* what) {
  const double difference = (found.to(at::kDouble) - wanted).norm().item<double>();
  EXPECT_LE(difference, relative * terms.norm().item<double>() + 1e-30) << what << " " << wanted.sizes();
}

// What a plain computation in double makes of the same inputs.
struct Expected {
  at::Tensor losses, z_losses, dx, dw, db, largest;
  at::Tensor dx_terms, dw_terms, db_terms;
};
Expected expected(const at::Tensor& x, const TestParam& weight, const TestParam& bias, const TokenTargets& targets,
                  double cap) {
  const at::Tensor x64 = in_double(x), w64 = in_double(weight.param.value), b64 = in_double(bias.param.value);
  const at::Tensor plain = x64.mm(w64.t()) + b64;
  plain.retain_grad();
  const at::Tensor exact = cap * (plain / cap).tanh();
  // Logits are rounded to the compute type: a shift that autograd does not see.
  const at::Tensor logits = exact + (exact.detach().to(x.scalar_type()).to(at::kDouble) - exact.detach());
  const at::Tensor losses = -at::log_softmax(logits, 1).gather(1, targets.labels.unsqueeze(1)).squeeze(1);
  const at::Tensor z_losses = kZLoss * at::logsumexp(logits, 1).square();
  ((losses + z_losses) * targets.loss_mask).sum().backward();
  const at::Tensor slopes = plain.grad().abs();
  return {losses.detach(),
          z_losses.detach(),
          x64.grad(),
          w64.grad(),
          b64.grad(),
          logits.detach().abs().max(),
          slopes.mm(w64.detach().abs()),
          slopes.t().mm(x64.detach().abs()),
          slopes.sum(0)};
}

void expect_all(const Sizes& size, at::ScalarType type, Mode mode) {
  TestParam weight(random({size.vocabulary, size.hidden}, type, 1)), bias(random({size.vocabulary}, type, 2));
  const at::Tensor x = random({size.tokens, size.hidden}, type, 3).requires_grad_(true);
  const TokenTargets targets{at::arange(size.tokens, at::kLong).mul(13).remainder(size.vocabulary),
                             at::ones({size.tokens}, at::kFloat)};
  if (size.tokens > 2) targets.loss_mask[2] = 0;
  tensor::GradQueue queue;
  queue.set_mode(mode);
  const TokenLosses found = linear_cross_entropy(x, weight.param, targets, queue, {},
                                                 {.bias = &bias.param, .z_loss = kZLoss, .soft_cap = size.cap});
  (found.sum + found.z_sum).backward();
  queue.drain();
  const Expected wanted = expected(x, weight, bias, targets, size.cap);
  EXPECT_LE(wanted.largest.item<double>(), size.cap * (1 + rounding(type)));
  const double relative = type == at::kFloat ? 1e-6 : 6 * rounding(type);
  expect_near(found.per_token, wanted.losses, wanted.losses, relative, "losses");
  expect_near(found.z_per_token, wanted.z_losses, wanted.z_losses, relative, "z losses");
  expect_near(x.grad(), wanted.dx, wanted.dx_terms, relative, "dx");
  expect_near(weight.added(), wanted.dw, wanted.dw_terms, relative, "dW");
  expect_near(bias.added(), wanted.db, wanted.db_terms, relative, "db");
}

class LinearCrossEntropyCap : public testing::TestWithParam<std::tuple<at::ScalarType, Mode>> {};

TEST_P(LinearCrossEntropyCap, LossAndGradientsMatchDoubleAutograd) {
  const auto [type, mode] = GetParam();
  for (const CpuIsa isa : reference::instruction_sets()) {
    const ForceCpuIsa force(isa);
    SCOPED_TRACE(cpu_isa_name(isa));
    for (const Sizes& size :
         {Sizes{1, 1, 2, 1}, {7, 7, 33, 0.5}, {33, 33, 129, 30}, {259, 64, 1031, 5}, {300, 40, 4130, 1000}}) {
      SCOPED_TRACE(testing::Message() << size.tokens << " tokens, cap " << size.cap);
      expect_all(size, type, mode);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, LinearCrossEntropyCap,
                         testing::Combine(testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                                          testing::Values(Mode::kImmediate, Mode::kDeferred)));

// tanh itself, over all sizes of its argument, whole vectors and parts of one.
TEST(SoftCapLogits, IsTanhInDouble) {
  for (const CpuIsa isa : reference::instruction_sets()) {
    const ForceCpuIsa force(isa);
    for (const double cap : {0.25, 1.0, 30.0}) {
      const at::Tensor exponents = at::linspace(-60, 8, 10007, at::kDouble);
      const at::Tensor signs = at::arange(10007, at::kDouble).remainder(2) * 2 - 1;
      at::Tensor logits = (signs * at::pow(2.0, exponents) * cap).to(at::kFloat).view({1, 10007});
      const at::Tensor wanted = cap * (logits.to(at::kDouble) / cap).tanh();
      soft_cap_logits(logits, cap);
      const double worst = ((logits.to(at::kDouble) - wanted) / wanted).abs().max().item<double>();
      EXPECT_LE(worst, 6 * 0x1p-24) << cpu_isa_name(isa) << ", cap " << cap;
    }
    at::Tensor special = at::tensor({INFINITY, -INFINITY, 0.0F, NAN, 1e30F}).view({1, 5});
    soft_cap_logits(special, 30);
    EXPECT_TRUE(at::equal(special.slice(1, 0, 3), at::tensor({30.0F, -30.0F, 0.0F}).view({1, 3})));
    EXPECT_TRUE(std::isnan(special[0][3].item<float>()));
    EXPECT_EQ(special[0][4].item<float>(), 30);
  }
}

}  // namespace linear_cross_entropy_cap_test
}  // namespace espalier::kernels
