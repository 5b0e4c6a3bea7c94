// The loss of a vocabulary that is divided into blocks. Real ones are; those of the other tests are too small.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/cross_entropy_blocks.h"
#include "kernels/cuda/ops.h"
#include "kernels/linear_cross_entropy.h"
#include "tests/cuda/agreement.h"

namespace espalier::cuda_test {
namespace vocabulary_blocks_test {

const at::Device kDevice = device_under_test();
constexpr int64_t kTokens = 7, kHidden = 24, kVocabulary = 300;
// 128, 128 and 44 rows.
constexpr int64_t kThreeBlocks = kTokens * 128 * sizeof(float);

at::Tensor labels() { return (at::arange(kTokens, at::kLong) * 89 + 37) % kVocabulary; }

// Plain ATen in double, differentiated by autograd.
Tensors plain_losses(const at::Tensor& x, const at::Tensor& weight) {
  const at::Tensor x64 = leaf(x.to(at::kDouble), at::kCPU), weight64 = leaf(weight.to(at::kDouble), at::kCPU);
  const at::Tensor losses = -at::log_softmax(x64.mm(weight64.t()), 1).gather(1, labels().unsqueeze(1)).squeeze(1);
  losses.sum().backward();
  return {losses.detach(), x64.grad(), weight64.grad()};
}

class VocabularyBlocks : public ::testing::TestWithParam<GradQueue::Mode> {
 protected:
  VocabularyBlocks() : ops_(cuda::make_ops(kThreeBlocks)) { kernels::set_device_ops(kDevice.type(), ops_.get()); }
  ~VocabularyBlocks() override { kernels::set_device_ops(kDevice.type(), nullptr); }

  std::unique_ptr<kernels::DeviceOps> ops_;
};

TEST_P(VocabularyBlocks, GiveTheLossAndGradientsOfTheWhole) {
  const at::Tensor values = random({kTokens, kHidden}, at::kFloat, 1);
  GradQueue queue;
  queue.set_mode(GetParam());
  const at::Tensor rows = random({kVocabulary, kHidden}, at::kFloat, 2);
  TestParam weight(rows, kDevice);
  weight.grad.zero_();
  const at::Tensor x = leaf(values, kDevice);
  const kernels::TokenLosses losses =
      kernels::linear_cross_entropy(x, weight, {labels().to(kDevice), at::ones({kTokens}).to(kDevice)}, queue);
  torch::autograd::backward({losses.sum}, {});
  queue.drain(queue.num_pending());
  const Tensors wanted = plain_losses(values, rows), got = {losses.per_token, x.grad(), weight.grad};
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_LT((got[i].cpu() - wanted[i]).abs().max().item<double>(), 1e-5) << "result " << i;
}

INSTANTIATE_TEST_SUITE_P(AtOnceAndDeferred, VocabularyBlocks,
                         ::testing::Values(GradQueue::Mode::kImmediate, GradQueue::Mode::kDeferred));

TEST(KeptLogits, GiveTheBitsOfThoseThatAreComputedAgain) {
  const auto ops = cuda::make_ops(kThreeBlocks);
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const double soft_cap : {0.0, 3.0}) {
      const at::Tensor x = random({kTokens, kHidden}, type, 1).to(kDevice);
      const at::Tensor weight = random({kVocabulary, kHidden}, type, 2).to(kDevice);
      const at::Tensor rows = labels().to(kDevice), grads = at::full({kTokens}, 0.25).to(kDevice);
      const kernels::CrossEntropyInput input{x, weight, rows, {}, soft_cap};
      const kernels::DeviceOps::SoftmaxRows sums = ops->cross_entropy_forward(input, /*keep_logits=*/true);
      ASSERT_GT(sums.kept_logits.numel(), 0);
      const at::Tensor log_sums = (sums.largest + sums.sum.log()).to(at::kFloat), none = at::empty({0}, x.options());
      const at::Tensor with = at::zeros({kVocabulary, kHidden}).to(kDevice), without = with.clone();
      const at::Tensor dx_without = ops->cross_entropy_backward(input, {log_sums, grads, {}, none, true, without, {}});
      const at::Tensor dx_with =
          ops->cross_entropy_backward(input, {log_sums, grads, {}, sums.kept_logits, true, with, {}});
      EXPECT_TRUE(at::equal(dx_with, dx_without)) << type << ", cap " << soft_cap;
      EXPECT_TRUE(at::equal(with, without)) << type << ", cap " << soft_cap;
    }
}

TEST(KeptLogits, TakeNoMoreThanTheLimit) {
  const at::Tensor x = random({kTokens, kHidden}, at::kFloat, 1).to(kDevice);
  const at::Tensor weight = random({kVocabulary, kHidden}, at::kFloat, 2).to(kDevice);
  const at::Tensor rows = labels().to(kDevice);
  const auto kept = cuda::make_ops(kThreeBlocks)->cross_entropy_forward({x, weight, rows}, /*keep_logits=*/true);
  EXPECT_EQ(static_cast<int64_t>(kept.kept_logits.storage().nbytes()), kThreeBlocks);
  const auto dropped = cuda::make_ops(kThreeBlocks)->cross_entropy_forward({x, weight, rows}, /*keep_logits=*/false);
  EXPECT_FALSE(dropped.kept_logits.defined());
}

}  // namespace vocabulary_blocks_test
}  // namespace espalier::cuda_test
