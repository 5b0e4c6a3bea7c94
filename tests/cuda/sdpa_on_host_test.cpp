// Whether cuDNN is asked, of the device that this machine stands in for.
#include "tests/cuda/sdpa_on_host.h"

#include "tests/cuda/attention_cases.h"

namespace espalier::cuda_test {
namespace sdpa_on_host_test {

constexpr kernels::Heads kHeads = {4, 2};

at::Tensor projection() { return random({33, 2, kHeads.columns(16)}, at::kBFloat16, 1); }

tensor::AttentionContext context_of(spec::AttentionBackend backend) {
  tensor::AttentionContext context;
  context.backend = backend;
  return context;
}

SdpaCalls calls_of(spec::AttentionBackend backend, at::Device device, bool with_graph) {
  const SdpaCalls before = sdpa_calls();
  const UseDevice use;
  const at::Tensor qkv = projection().to(device).requires_grad_(with_graph);
  const at::Tensor y = kernels::attention(qkv, context_of(backend), kHeads, 0);
  if (with_graph) torch::autograd::backward({y}, {at::ones_like(y)});
  const SdpaCalls after = sdpa_calls();
  return {after.forward - before.forward, after.backward - before.backward,
          after.with_log_sum_exp - before.with_log_sum_exp};
}

TEST(DeviceCudnnCalls, OneOfEachPassAndALogSumExpForBackwardAlone) {
  const SdpaCalls trained = calls_of(spec::AttentionBackend::kCudnn, device_under_test(), true);
  EXPECT_EQ(trained.forward, 1);
  EXPECT_EQ(trained.backward, 1);
  EXPECT_EQ(trained.with_log_sum_exp, 1);
  const SdpaCalls evaluated = calls_of(spec::AttentionBackend::kCudnn, device_under_test(), false);
  EXPECT_EQ(evaluated.forward, 1);
  EXPECT_EQ(evaluated.with_log_sum_exp, 0);
}

TEST(DeviceCudnnCalls, NoneForOurKernelsAndNoneOnTheCpu) {
  EXPECT_EQ(calls_of(spec::AttentionBackend::kFlash, device_under_test(), true).forward, 0);
  EXPECT_EQ(calls_of(spec::AttentionBackend::kCudnn, at::kCPU, true).forward, 0);
}

}  // namespace sdpa_on_host_test
}  // namespace espalier::cuda_test
