#include "kernels/rms_norm.h"

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

struct RmsNormalized {
  at::Tensor y;     // as x
  at::Tensor rstd;  // [rows] fp32
};

RmsNormalized forward_rows(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  const WorkSpan span(Work::kNorm, "forward");
  const int64_t columns = weight.size(0), rows = x.numel() / columns;
  RmsNormalized result{at::empty_like(x), at::empty({rows}, x.options().dtype(at::kFloat))};
  const RmsNormForward args{.x = x.const_data_ptr(),
                            .weight = weight.const_data_ptr(),
                            .y = result.y.data_ptr(),
                            .rstd = result.rstd.data_ptr<float>(),
                            .columns = columns,
                            .epsilon = static_cast<float>(epsilon)};
  if (const DeviceOps* device = device_ops(x)) {
    device->rms_norm_forward(x.scalar_type(), args, rows);
    return result;
  }
  const TypedRowKernels& kernels = row_kernels(x.scalar_type());
  for_each_block(RowBlocks(rows), columns,
                 [&](int64_t, int64_t first, int64_t last) { kernels.rms_norm_forward(args, first, last); });
  return result;
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  struct State {
    tensor::Param* weight;
    tensor::GradQueue* queue;
  };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, State state, double epsilon) {
    RmsNormalized result = forward_rows(x, as(x, state.weight->value), epsilon);
    tensor::save_for_backward(context, "rms_norm", {{"x", x}, {"rstd", result.rstd}});
    capture_state(context, state);
    return as(state.weight->value, result.y);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const WorkSpan span(Work::kNorm, "backward");
    const State& state = captured_state<State>(context);
    const variable_list saved = context->get_saved_variables();
    const at::Tensor weight = as(saved[0], state.weight->value), dy = as(saved[0], grads[0].contiguous());
    at::Tensor dx = at::empty_like(dy);
    const int64_t columns = dy.size(-1);
    const RmsNormBackward args{.x = saved[0].const_data_ptr(),
                               .weight = weight.const_data_ptr(),
                               .dy = dy.const_data_ptr(),
                               .dx = dx.data_ptr(),
                               .rstd = saved[1].const_data_ptr<float>(),
                               .columns = columns};
    if (const DeviceOps* device = device_ops(dy)) {
      push_grad(*state.queue, *state.weight, device->rms_norm_backward(dy.scalar_type(), args, saved[1].numel()));
      return {dx, {}, {}};
    }
    const RowBlocks blocks(saved[1].numel());
    ColumnSums sums(blocks, 1, columns);
    const TypedRowKernels& kernels = row_kernels(dy.scalar_type());
    for_each_block(blocks, columns, [&](int64_t block, int64_t first, int64_t last) {
      kernels.rms_norm_backward(args, first, last, sums.partial(block));
    });
    push_grad(*state.queue, *state.weight, sums.total()[0]);
    return {dx, {}, {}};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, tensor::Param& weight, double epsilon, tensor::GradQueue& queue) {
  ESPALIER_CHECK(x.dim() >= 1 && x.is_contiguous() && weight.value.dim() == 1 && x.size(-1) == weight.value.size(0),
                 "x ", x.sizes(), " strides ", x.strides(), ", weight ", weight.value.sizes());
  ESPALIER_CHECK(may_pass(x, weight.value), "x ", x.scalar_type(), ", weight ", weight.value.scalar_type());
  if (!builds_graph(x)) return as(weight.value, forward_rows(x, as(x, weight.value), epsilon).y);
  return RmsNorm::apply(x, RmsNorm::State{&weight, &queue}, epsilon);
}

}  // namespace espalier::kernels
