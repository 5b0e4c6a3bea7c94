#include "kernels/layer_norm.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "kernels/captured.h"
#include "tensor/saved.h"

namespace espalier::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Normalized {
  at::Tensor y, mean, rstd;
};

Normalized forward_rows(const at::Tensor& x, const tensor::Param& weight, const tensor::Param& bias, double epsilon) {
  auto [y, mean, rstd] = at::native_layer_norm(x.to(at::kFloat), weight.value.sizes(), weight.value.to(at::kFloat),
                                               bias.value.to(at::kFloat), epsilon);
  return {y.to(x.scalar_type()), mean, rstd};
}

struct LayerNorm : torch::autograd::Function<LayerNorm> {
  struct State {
    tensor::Param* weight;
    tensor::Param* bias;
    tensor::GradQueue* queue;
  };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, State state, double epsilon) {
    Normalized result = forward_rows(x, *state.weight, *state.bias, epsilon);
    tensor::save_for_backward(context, "layer_norm", {{"x", x}, {"mean", result.mean}, {"rstd", result.rstd}});
    capture_state(context, state);
    return result.y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const State& state = captured_state<State>(context);
    const variable_list saved = context->get_saved_variables();
    tensor::Param& weight = *state.weight;
    tensor::Param& bias = *state.bias;
    auto [dx, dweight, dbias] = at::native_layer_norm_backward(
        grads[0].to(at::kFloat).contiguous(), saved[0].to(at::kFloat), weight.value.sizes(), saved[1], saved[2],
        weight.value.to(at::kFloat), bias.value.to(at::kFloat), {true, true, true});
    if (weight.grad.defined()) state.queue->push(weight, [&weight, sum = dweight] { weight.grad.add_(sum); });
    if (bias.grad.defined()) state.queue->push(bias, [&bias, sum = dbias] { bias.grad.add_(sum); });
    return {dx.to(saved[0].scalar_type()), {}, {}};
  }
};

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, tensor::Param& weight, tensor::Param& bias, double epsilon,
                      tensor::GradQueue& queue) {
  ESPALIER_CHECK(x.is_contiguous() && weight.value.dim() == 1 && x.size(-1) == weight.value.size(0),
                 "x ", x.sizes(), ", weight ", weight.value.sizes());
  if (!builds_graph(x)) return forward_rows(x, weight, bias, epsilon).y;
  return LayerNorm::apply(x, LayerNorm::State{&weight, &bias, &queue}, epsilon);
}

}  // namespace espalier::kernels
