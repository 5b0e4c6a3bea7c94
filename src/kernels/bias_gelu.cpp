#include "kernels/bias_gelu.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "kernels/captured.h"
#include "tensor/saved.h"

namespace espalier::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const char* approximation(spec::Activation activation) {
  return activation == spec::Activation::kGeluTanh ? "tanh" : "none";
}

at::Tensor forward_rows(const at::Tensor& x, const tensor::Param& bias, spec::Activation activation) {
  return at::gelu(x.to(at::kFloat) + bias.value.to(at::kFloat), approximation(activation)).to(x.scalar_type());
}

struct BiasGelu : torch::autograd::Function<BiasGelu> {
  struct State {
    tensor::Param* bias;
    spec::Activation activation;
    tensor::GradQueue* queue;
  };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, State state) {
    tensor::save_for_backward(context, "bias_gelu", {{"x", x}});
    capture_state(context, state);
    return forward_rows(x, *state.bias, state.activation);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const State& state = captured_state<State>(context);
    const at::Tensor x = context->get_saved_variables()[0];
    tensor::Param& bias = *state.bias;
    const at::Tensor dx = at::gelu_backward(grads[0].to(at::kFloat), x.to(at::kFloat) + bias.value.to(at::kFloat),
                                            approximation(state.activation));
    if (bias.grad.defined()) {
      state.queue->push(bias, [&bias, sum = dx.view({-1, dx.size(-1)}).sum(0)] { bias.grad.add_(sum); });
    }
    return {dx.to(x.scalar_type()), {}};
  }
};

}  // namespace

at::Tensor bias_gelu(const at::Tensor& x, tensor::Param& bias, spec::Activation activation, tensor::GradQueue& queue) {
  ESPALIER_CHECK(x.is_contiguous() && bias.value.dim() == 1 && x.size(-1) == bias.value.size(0), "x ", x.sizes(),
                 ", bias ", bias.value.sizes());
  if (!builds_graph(x)) return forward_rows(x, bias, activation);
  return BiasGelu::apply(x, BiasGelu::State{&bias, activation, &queue});
}

}  // namespace espalier::kernels
