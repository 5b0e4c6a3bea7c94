#include "kernels/dropout.h"

#include <ATen/ATen.h>

#include <cmath>

#include "base/error.h"
#include "kernels/captured.h"

namespace espalier::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [s, b, h] fp32: 0 where dropped, else 1 / (1 - probability).
at::Tensor mask(const DropoutSite& site, at::IntArrayRef shape) {
  const double threshold = std::ceil(site.probability * 0x1p32);
  const float scale = static_cast<float>(1.0 / (1.0 - site.probability));
  at::Tensor result = at::empty(shape, at::TensorOptions().dtype(at::kFloat));
  float* out = result.data_ptr<float>();
  for (int64_t position = 0; position < shape[0]; ++position) {
    for (int64_t row = 0; row < shape[1]; ++row, out += shape[2]) {
      const uint64_t sample = static_cast<uint64_t>((*site.sample_numbers)[row]);
      for (int64_t feature = 0; feature < shape[2]; ++feature) {
        const tensor::PhiloxBlock bits = tensor::philox4x32(
            site.key, {{static_cast<uint32_t>(feature / 4), static_cast<uint32_t>(position),
                        static_cast<uint32_t>(sample >> 32 << 16), static_cast<uint32_t>(sample)}});
        out[feature] = bits.word[feature % 4] < threshold ? 0.0f : scale;
      }
    }
  }
  return result;
}

at::Tensor masked(const at::Tensor& fp32, const DropoutSite& site) {
  return site.probability > 0 ? fp32 * mask(site, fp32.sizes()) : fp32;
}

void check(const at::Tensor& x, const DropoutSite& site) {
  ESPALIER_CHECK(x.dim() == 3 && x.is_contiguous(), "x must be [s, b, h], is ", x.sizes());
  ESPALIER_CHECK(site.probability >= 0 && site.probability < 1, "dropout probability ", site.probability);
  ESPALIER_CHECK(site.probability == 0 || (site.sample_numbers != nullptr &&
                                           static_cast<int64_t>(site.sample_numbers->size()) == x.size(1)),
                 "one sample number for each of ", x.size(1), " rows");
}

at::Tensor forward_rows(const at::Tensor& x, const tensor::Param* bias, const at::Tensor& residual,
                        const DropoutSite& site) {
  at::Tensor y = x.to(at::kFloat);
  if (bias != nullptr) y = y + bias->value.to(at::kFloat);
  return (residual.to(at::kFloat) + masked(y, site)).to(x.scalar_type());
}

struct BiasDropoutAdd : torch::autograd::Function<BiasDropoutAdd> {
  struct State {
    tensor::Param* bias;
    DropoutSite site;
    tensor::GradQueue* queue;
  };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& residual, State state) {
    capture_state(context, state);
    return forward_rows(x, state.bias, residual, state.site);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const State& state = captured_state<State>(context);
    const at::Tensor dx = masked(grads[0].to(at::kFloat), state.site);
    tensor::Param* bias = state.bias;
    if (bias != nullptr && bias->grad.defined()) {
      state.queue->push(*bias, [bias, sum = dx.view({-1, dx.size(2)}).sum(0)] { bias->grad.add_(sum); });
    }
    return {dx.to(grads[0].scalar_type()), grads[0], {}};
  }
};

struct Dropout : torch::autograd::Function<Dropout> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, DropoutSite site) {
    capture_state(context, site);
    return masked(x.to(at::kFloat), site).to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    return {masked(grads[0].to(at::kFloat), captured_state<DropoutSite>(context)).to(grads[0].scalar_type()), {}};
  }
};

}  // namespace

at::Tensor bias_dropout_add(const at::Tensor& x, tensor::Param* bias, const at::Tensor& residual, const DropoutSite& site,
                            tensor::GradQueue& queue) {
  check(x, site);
  ESPALIER_CHECK(residual.sizes() == x.sizes() && residual.is_contiguous(), "x ", x.sizes(), ", residual ",
                 residual.sizes());
  if (!builds_graph(x) && !builds_graph(residual)) return forward_rows(x, bias, residual, site);
  return BiasDropoutAdd::apply(x, residual, BiasDropoutAdd::State{bias, site, &queue});
}

at::Tensor dropout(const at::Tensor& x, const DropoutSite& site) {
  check(x, site);
  if (site.probability == 0) return x;
  if (!builds_graph(x)) return masked(x.to(at::kFloat), site).to(x.scalar_type());
  return Dropout::apply(x, site);
}

}  // namespace espalier::kernels
