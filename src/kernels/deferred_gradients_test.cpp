// Every op with parameters under GradQueue::Mode::kDeferred, which a schedule uses to separate the gradients of weights
// from those of activations: nothing is added before the queue is drained, and then the same bits in the same order.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/cpu_isa.h"
#include "kernels/activation.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/layer_norm.h"
#include "kernels/linear.h"
#include "kernels/linear_cross_entropy.h"
#include "kernels/qk_norm.h"
#include "kernels/reference_test.h"
#include "kernels/rms_norm.h"

namespace espalier::kernels {
namespace deferred_gradients_test {

using reference::random;
using reference::TestParam;
using tensor::GradQueue;

constexpr int64_t kLength = 35, kSamples = 3, kHidden = 33, kVocabulary = 130;
const std::vector<int64_t> kSampleNumbers = {4, 5, 6};

// Parameters of one run of an op, made at first use, by name.
class Params {
 public:
  explicit Params(at::ScalarType type) : type_(type) {}
  tensor::Param& at(const std::string& name, at::IntArrayRef shape) {
    const auto [found, is_new] = params_.try_emplace(name, random(shape, type_, 1));
    if (is_new) names_[&found->second.param] = name;
    return found->second.param;
  }
  const std::map<std::string, TestParam>& all() const { return params_; }
  const std::string& name(const tensor::Param& param) const { return names_.at(&param); }

 private:
  at::ScalarType type_;
  std::map<std::string, TestParam> params_;
  std::map<const tensor::Param*, std::string> names_;
};

// x [s, b, h] -> whatever the op returns; ids and targets are fixed.
using Op = std::function<at::Tensor(const at::Tensor& x, Params& params, GradQueue& queue)>;

at::Tensor token_ids() {
  return at::arange(kSamples * kLength, at::kLong).mul(7).remainder(kVocabulary).view({kSamples, kLength});
}

at::Tensor cross_entropy(const at::Tensor& x, Params& params, GradQueue& queue) {
  const TokenTargets targets{token_ids().view({-1}), at::ones({kLength * kSamples}, at::kFloat)};
  return linear_cross_entropy(x.view({-1, kHidden}), params.at("weight", {kVocabulary, kHidden}), targets, queue).sum;
}

const std::map<std::string, Op>& ops() {
  static const std::map<std::string, Op> all = {
      {"linear",
       [](const at::Tensor& x, Params& params, GradQueue& queue) {
         return linear(x, params.at("weight", {17, kHidden}), &params.at("bias", {17}), queue);
       }},
      {"layer_norm",
       [](const at::Tensor& x, Params& params, GradQueue& queue) {
         return layer_norm(x, params.at("weight", {kHidden}), params.at("bias", {kHidden}), 1e-5, queue);
       }},
      {"bias_activation",
       [](const at::Tensor& x, Params& params, GradQueue& queue) {
         return bias_activation(x, &params.at("bias", {kHidden}), spec::Activation::kGeluTanh, queue);
       }},
      {"rms_norm", [](const at::Tensor& x, Params& params,
                      GradQueue& queue) { return rms_norm(x, params.at("weight", {kHidden}), 1e-5, queue); }},
      {"qk_norm",
       [](const at::Tensor& x, Params& params, GradQueue& queue) {
         return qk_norm(x, params.at("query", {kHidden / 3}), params.at("key", {kHidden / 3}), {1, 1}, 1e-5, queue);
       }},
      {"gated bias_activation",
       [](const at::Tensor& x, Params& params, GradQueue& queue) {
         const at::Tensor both = at::cat({x, x}, -1);
         return bias_activation(both, &params.at("bias", {2 * kHidden}), spec::Activation::kSwiglu, queue);
       }},
      {"bias_dropout_add",
       [](const at::Tensor& x, Params& params, GradQueue& queue) {
         const DropoutSite site{.probability = 0.3, .key = {{1, 2}}, .sample_numbers = &kSampleNumbers};
         return bias_dropout_add(x, &params.at("bias", {kHidden}), x.detach(), site, queue);
       }},
      {"bias_add",
       [](const at::Tensor& x, Params& params, GradQueue& queue) {
         return bias_dropout_add(x, &params.at("bias", {kHidden}), x.detach(), DropoutSite{}, queue);
       }},
      {"linear_cross_entropy", cross_entropy},
      {"tied embedding",  // two ops that add to one parameter
       [](const at::Tensor& x, Params& params, GradQueue& queue) {
         const at::Tensor rows = embedding(token_ids(), params.at("weight", {kVocabulary, kHidden}), queue);
         return cross_entropy(x + rows, params, queue);
       }},
  };
  return all;
}

struct Outcome {
  at::Tensor dx;
  std::map<std::string, at::Tensor> grads;
  std::vector<std::string> announced;  // parameters in the order in which the queue told of them
  size_t pending = 0;                  // pieces of work before the drain
};

Outcome run(const Op& op, at::ScalarType type, GradQueue::Mode mode) {
  Outcome result;
  Params params(type);
  GradQueue queue;
  queue.set_mode(mode);
  queue.set_on_added([&](tensor::Param& param) { result.announced.push_back(params.name(param)); });
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    at::Tensor x = random({kLength, kSamples, kHidden}, type, 10 + micro_batch, 0.3).requires_grad_(true);
    const at::Tensor y = op(x, params, queue);
    y.backward(random(y.sizes(), y.scalar_type(), 20 + micro_batch));
    result.dx = result.dx.defined() ? at::cat({result.dx, x.grad()}) : x.grad();
  }
  result.pending = queue.num_pending();
  if (mode == GradQueue::Mode::kDeferred) {
    for (const auto& [name, param] : params.all()) EXPECT_EQ(param.added().abs().max().item<double>(), 0.0) << name;
    EXPECT_TRUE(result.announced.empty());
  }
  queue.drain();
  for (const auto& [name, param] : params.all()) result.grads[name] = param.param.grad;
  return result;
}

TEST(DeferredGradients, WaitForTheDrainAndAreTheSameBitsInTheSameOrder) {
  for (const CpuIsa isa : reference::instruction_sets()) {
    const ForceCpuIsa force(isa);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const auto& [name, op] : ops()) {
        SCOPED_TRACE(concat(name, " ", c10::toString(type), " on ", cpu_isa_name(isa)));
        const Outcome immediate = run(op, type, GradQueue::Mode::kImmediate);
        const Outcome deferred = run(op, type, GradQueue::Mode::kDeferred);
        EXPECT_EQ(immediate.pending, 0u);
        EXPECT_EQ(deferred.pending, immediate.announced.size());
        EXPECT_GE(immediate.announced.size(), 2 * immediate.grads.size());  // each parameter in each micro-batch
        EXPECT_EQ(deferred.announced, immediate.announced);
        EXPECT_TRUE(at::equal(deferred.dx, immediate.dx));
        for (const auto& [param, grad] : immediate.grads)
          EXPECT_TRUE(at::equal(deferred.grads.at(param), grad)) << param;
      }
    }
  }
}

}  // namespace deferred_gradients_test
}  // namespace espalier::kernels
