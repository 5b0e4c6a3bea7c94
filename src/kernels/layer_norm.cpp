#include "kernels/layer_norm.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/work_profile.h"
#include "kernels/captured.h"
#include "kernels/device_ops.h"
#include "kernels/internal/row_dispatch.h"
#include "kernels/internal/stream_type.h"
#include "tensor/saved.h"

namespace espalier::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using Normalized = DeviceOps::Normalized;

Normalized forward_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
  const WorkSpan span(Work::kNorm, "forward");
  if (const DeviceOps* device = device_ops(x)) return device->layer_norm_forward(x, weight, bias, epsilon);
  const int64_t columns = weight.size(0), rows = x.numel() / columns;
  const auto fp32 = at::TensorOptions().dtype(at::kFloat);
  Normalized result{at::empty_like(x), at::empty({rows}, fp32), at::empty({rows}, fp32)};
  const LayerNormForward args{.x = x.const_data_ptr(),
                              .weight = weight.const_data_ptr(),
                              .bias = bias.const_data_ptr(),
                              .y = result.y.data_ptr(),
                              .mean = result.mean.data_ptr<float>(),
                              .rstd = result.rstd.data_ptr<float>(),
                              .columns = columns,
                              .epsilon = static_cast<float>(epsilon)};
  const TypedRowKernels& kernels = row_kernels(x.scalar_type());
  for_each_block(RowBlocks(rows), columns,
                 [&](int64_t, int64_t first, int64_t last) { kernels.layer_norm_forward(args, first, last); });
  return result;
}

DeviceOps::NormGradients backward_rows(const at::Tensor& x, const Normalized& normalized, const at::Tensor& weight,
                                       const at::Tensor& dy) {
  const WorkSpan span(Work::kNorm, "backward");
  if (const DeviceOps* device = device_ops(dy)) return device->layer_norm_backward(x, normalized, weight, dy);
  at::Tensor dx = at::empty_like(dy);
  const int64_t columns = dy.size(-1);
  const LayerNormBackward args{.x = x.const_data_ptr(),
                               .weight = weight.const_data_ptr(),
                               .dy = dy.const_data_ptr(),
                               .dx = dx.data_ptr(),
                               .mean = normalized.mean.const_data_ptr<float>(),
                               .rstd = normalized.rstd.const_data_ptr<float>(),
                               .columns = columns};
  const RowBlocks blocks(normalized.mean.numel());
  ColumnSums sums(blocks, 2, columns);
  const TypedRowKernels& kernels = row_kernels(dy.scalar_type());
  for_each_block(blocks, columns, [&](int64_t block, int64_t first, int64_t last) {
    kernels.layer_norm_backward(args, first, last, sums.partial(block, 0), sums.partial(block, 1));
  });
  const at::Tensor total = sums.total();
  return {dx, total[0], total[1]};
}

struct LayerNorm : torch::autograd::Function<LayerNorm> {
  struct State {
    tensor::Param* weight;
    tensor::Param* bias;
    tensor::GradQueue* queue;
  };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, State state, double epsilon) {
    Normalized result = forward_rows(x, as(x, state.weight->value), as(x, state.bias->value), epsilon);
    tensor::save_for_backward(context, "layer_norm", {{"x", x}, {"mean", result.mean}, {"rstd", result.rstd}});
    capture_state(context, state);
    return as(state.weight->value, result.y);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const State& state = captured_state<State>(context);
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const DeviceOps::NormGradients gradients =
        backward_rows(x, {{}, saved[1], saved[2]}, as(x, state.weight->value), as(x, grads[0].contiguous()));
    push_grad(*state.queue, *state.weight, gradients.weight);
    push_grad(*state.queue, *state.bias, gradients.bias);
    return {gradients.dx, {}, {}};
  }
};

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, tensor::Param& weight, tensor::Param& bias, double epsilon,
                      tensor::GradQueue& queue) {
  ESPALIER_CHECK(x.dim() >= 1 && x.is_contiguous() && weight.value.dim() == 1 && x.size(-1) == weight.value.size(0) &&
                     bias.value.sizes() == weight.value.sizes(),
                 "x ", x.sizes(), ", weight ", weight.value.sizes(), ", bias ", bias.value.sizes());
  ESPALIER_CHECK(may_pass(x, weight.value) && weight.value.scalar_type() == bias.value.scalar_type(), "x ",
                 x.scalar_type(), ", weight ", weight.value.scalar_type(), ", bias ", bias.value.scalar_type());
  if (!builds_graph(x)) return as(weight.value, forward_rows(x, as(x, weight.value), as(x, bias.value), epsilon).y);
  return LayerNorm::apply(x, LayerNorm::State{&weight, &bias, &queue}, epsilon);
}

}  // namespace espalier::kernels
