#include "kernels/bias_gelu.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "kernels/captured.h"
#include "kernels/internal/row_dispatch.h"
#include "tensor/saved.h"

namespace espalier::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor forward_rows(const at::Tensor& x, const at::Tensor& bias, spec::Activation activation) {
  at::Tensor y = at::empty_like(x);
  const int64_t columns = bias.size(0);
  const BiasGeluForward args{
      .x = x.const_data_ptr(), .bias = bias.const_data_ptr(), .y = y.data_ptr(), .columns = columns};
  const TypedRowKernels& kernels = row_kernels(x.scalar_type());
  const auto kernel =
      activation == spec::Activation::kGeluTanh ? kernels.bias_gelu_tanh_forward : kernels.bias_gelu_erf_forward;
  for_each_block(RowBlocks(x.numel() / columns), columns,
                 [&](int64_t, int64_t first, int64_t last) { kernel(args, first, last); });
  return y;
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
    return forward_rows(x, state.bias->value, state.activation);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const State& state = captured_state<State>(context);
    const at::Tensor x = context->get_saved_variables()[0];
    const at::Tensor dy = grads[0].contiguous();
    at::Tensor dx = at::empty_like(dy);
    const int64_t columns = dy.size(-1);
    const BiasGeluBackward args{.x = x.const_data_ptr(),
                                .bias = state.bias->value.const_data_ptr(),
                                .dy = dy.const_data_ptr(),
                                .dx = dx.data_ptr(),
                                .columns = columns};
    const RowBlocks blocks(dy.numel() / columns);
    ColumnSums sums(blocks, 1, columns);
    const TypedRowKernels& kernels = row_kernels(dy.scalar_type());
    const auto kernel = state.activation == spec::Activation::kGeluTanh ? kernels.bias_gelu_tanh_backward
                                                                        : kernels.bias_gelu_erf_backward;
    for_each_block(blocks, columns,
                   [&](int64_t block, int64_t first, int64_t last) { kernel(args, first, last, sums.partial(block)); });
    push_grad(*state.queue, *state.bias, sums.total()[0]);
    return {dx, {}};
  }
};

}  // namespace

at::Tensor bias_gelu(const at::Tensor& x, tensor::Param& bias, spec::Activation activation, tensor::GradQueue& queue) {
  ESPALIER_CHECK(x.dim() >= 1 && x.is_contiguous() && bias.value.dim() == 1 && x.size(-1) == bias.value.size(0), "x ",
                 x.sizes(), ", bias ", bias.value.sizes());
  ESPALIER_CHECK(x.scalar_type() == bias.value.scalar_type(), "x ", x.scalar_type(), ", bias ",
                 bias.value.scalar_type());
  if (!builds_graph(x)) return forward_rows(x, bias.value, activation);
  return BiasGelu::apply(x, BiasGelu::State{&bias, activation, &queue});
}

}  // namespace espalier::kernels
