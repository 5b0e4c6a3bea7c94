#include "kernels/dropout.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/work_profile.h"
#include "kernels/captured.h"
#include "kernels/device_ops.h"
#include "kernels/internal/drop_threshold.h"
#include "kernels/internal/row_dispatch.h"
#include "kernels/internal/stream_type.h"

namespace espalier::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check(const at::Tensor& x, const DropoutSite& site) {
  ESPALIER_CHECK(x.dim() == 3 && x.is_contiguous(), "x must be [s, b, h], is ", x.sizes());
  ESPALIER_CHECK(site.probability >= 0 && site.probability <= 1 - 0x1p-32, "dropout probability ", site.probability);
  ESPALIER_CHECK(site.probability == 0 ||
                     (site.sample_numbers != nullptr && static_cast<int64_t>(site.sample_numbers->size()) == x.size(1)),
                 "one sample number for each of ", x.size(1), " rows");
  ESPALIER_CHECK(site.first_position >= 0 && site.first_position + x.size(0) <= int64_t{1} << 32, "positions from ",
                 site.first_position);
}

// Everything of the arguments but bias, residual and y. x: [s, b, h].
DropoutRows rows_of(const at::Tensor& x, const DropoutSite& site) {
  return {.x = x.const_data_ptr(),
          .bias = nullptr,
          .residual = nullptr,
          .y = nullptr,
          .columns = x.size(2),
          .masked = site.probability > 0,
          .keys = round_keys(site.key),
          .sample_numbers = site.probability > 0 ? site.sample_numbers->data() : nullptr,
          .num_samples = x.size(1),
          .first_position = site.first_position,
          .threshold = drop_threshold(site.probability),
          .scale = static_cast<float>(1 / (1 - site.probability))};
}

// All of one type; bias and residual may be undefined.
at::Tensor forward_rows(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                        const DropoutSite& site) {
  const WorkSpan span(Work::kDropout, "forward");
  if (const DeviceOps* device = device_ops(x)) return device->dropout_forward(x, bias, residual, site);
  at::Tensor y = at::empty_like(x);
  DropoutRows args = rows_of(x, site);
  if (bias.defined()) args.bias = bias.const_data_ptr();
  if (residual.defined()) args.residual = residual.const_data_ptr();
  args.y = y.data_ptr();
  const TypedRowKernels& kernels = row_kernels(x.scalar_type());
  for_each_block(RowBlocks(x.size(0) * x.size(1)), x.size(2),
                 [&](int64_t, int64_t first, int64_t last) { kernels.dropout(args, first, last, nullptr); });
  return y;
}

at::Tensor add_to(const at::Tensor& residual, const at::Tensor& x, const tensor::Param* bias, const DropoutSite& site) {
  return forward_rows(as(residual, x), bias != nullptr ? as(residual, bias->value) : at::Tensor(), residual, site);
}

DeviceOps::BiasGradients backward_rows(const at::Tensor& dy, const DropoutSite& site, bool with_bias) {
  if (const DeviceOps* device = device_ops(dy)) return device->dropout_backward(dy, site, with_bias);
  at::Tensor dx = at::empty_like(dy);
  DropoutRows args = rows_of(dy, site);
  args.y = dx.data_ptr();
  const RowBlocks blocks(dy.size(0) * dy.size(1));
  ColumnSums sums(blocks, with_bias ? 1 : 0, dy.size(2));
  const TypedRowKernels& kernels = row_kernels(dy.scalar_type());
  for_each_block(blocks, dy.size(2), [&](int64_t block, int64_t first, int64_t last) {
    kernels.dropout(args, first, last, with_bias ? sums.partial(block) : nullptr);
  });
  return {dx, with_bias ? sums.total()[0] : at::Tensor()};
}

struct BiasDropoutAdd : torch::autograd::Function<BiasDropoutAdd> {
  struct State {
    tensor::Param* bias;
    DropoutSite site;
    tensor::GradQueue* queue;
    at::ScalarType compute_type;
  };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& residual, State state) {
    capture_state(context, state);
    return add_to(residual, x, state.bias, state.site);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const WorkSpan span(Work::kDropout, "backward");
    const State& state = captured_state<State>(context);
    const at::Tensor dy = grads[0].contiguous();
    const bool summed = state.bias != nullptr && state.bias->has_grad();
    if (state.site.probability == 0) {
      if (summed) push_grad(*state.queue, *state.bias, column_sums(dy));
      return {dy.to(state.compute_type), dy, {}};
    }
    const DeviceOps::BiasGradients gradients = backward_rows(dy, state.site, summed);
    if (summed) push_grad(*state.queue, *state.bias, gradients.bias);
    return {gradients.dx.to(state.compute_type), dy, {}};
  }
};

struct Dropout : torch::autograd::Function<Dropout> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, DropoutSite site) {
    capture_state(context, site);
    return forward_rows(x, {}, {}, site);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    return {forward_rows(grads[0].contiguous(), {}, {}, captured_state<DropoutSite>(context)), {}};
  }
};

}  // namespace

at::Tensor bias_dropout_add(const at::Tensor& x, tensor::Param* bias, const at::Tensor& residual,
                            const DropoutSite& site, tensor::GradQueue& queue) {
  check(x, site);
  ESPALIER_CHECK(residual.sizes() == x.sizes() && residual.is_contiguous() && may_pass(residual, x), "x ", x.sizes(),
                 " ", x.scalar_type(), ", residual ", residual.sizes(), " ", residual.scalar_type());
  ESPALIER_CHECK(bias == nullptr || (bias->value.dim() == 1 && bias->value.size(0) == x.size(2) &&
                                     bias->value.scalar_type() == x.scalar_type()),
                 "x ", x.sizes(), " ", x.scalar_type(), ", bias ", bias->value.sizes(), " ", bias->value.scalar_type());
  if (!builds_graph(x) && !builds_graph(residual)) return add_to(residual, x, bias, site);
  return BiasDropoutAdd::apply(x, residual, BiasDropoutAdd::State{bias, site, &queue, x.scalar_type()});
}

at::Tensor dropout(const at::Tensor& x, const DropoutSite& site) {
  check(x, site);
  if (site.probability == 0) return x;
  if (!builds_graph(x)) return forward_rows(x, {}, {}, site);
  return Dropout::apply(x, site);
}

}  // namespace espalier::kernels
