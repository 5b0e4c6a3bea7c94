#include "kernels/activation.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/work_profile.h"
#include "kernels/captured.h"
#include "kernels/device_ops.h"
#include "kernels/internal/row_dispatch.h"
#include "tensor/saved.h"

namespace espalier::kernels {
namespace {

using spec::Activation;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

ActivationFunction function_of(Activation activation) {
  switch (activation) {
    case Activation::kGeluTanh:
    case Activation::kGegluTanh: return ActivationFunction::kGeluTanh;
    case Activation::kGeluErf:
    case Activation::kGeglu: return ActivationFunction::kGeluErf;
    case Activation::kRelu:
    case Activation::kReglu: return ActivationFunction::kRelu;
    case Activation::kSquaredRelu: return ActivationFunction::kSquaredRelu;
    case Activation::kSilu:
    case Activation::kSwiglu: return ActivationFunction::kSilu;
    case Activation::kLiglu: return ActivationFunction::kIdentity;
  }
  ESPALIER_CHECK(false, "activation ", static_cast<int>(activation));
  return {};
}

const ActivationKernels& kernels_of(at::ScalarType compute_type, Activation activation) {
  return row_kernels(compute_type).activations[static_cast<int>(function_of(activation))];
}

const void* values_of(const tensor::Param* param) { return param == nullptr ? nullptr : param->value.const_data_ptr(); }

// Of one row of the result.
int64_t result_columns(const at::Tensor& x, Activation activation) {
  return spec::is_gated(activation) ? x.size(-1) / 2 : x.size(-1);
}

int64_t num_rows(const at::Tensor& x) { return x.size(-1) == 0 ? 0 : x.numel() / x.size(-1); }

at::Tensor forward_rows(const at::Tensor& x, const tensor::Param* bias, Activation activation) {
  const WorkSpan span(Work::kActivation, "forward");
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = result_columns(x, activation);
  at::Tensor y = at::empty(shape, x.options());
  const ActivationForward args{
      .x = x.const_data_ptr(), .bias = values_of(bias), .y = y.data_ptr(), .columns = shape.back()};
  const bool gated = spec::is_gated(activation);
  if (const DeviceOps* device = device_ops(x)) {
    device->activation_forward(x.scalar_type(), {function_of(activation), gated}, args, num_rows(x));
    return y;
  }
  const ActivationKernels& kernels = kernels_of(x.scalar_type(), activation);
  const auto kernel = gated ? kernels.gated_forward : kernels.forward;
  for_each_block(RowBlocks(num_rows(x)), x.size(-1),
                 [&](int64_t, int64_t first, int64_t last) { kernel(args, first, last); });
  return y;
}

struct BiasActivation : torch::autograd::Function<BiasActivation> {
  struct State {
    tensor::Param* bias;  // null: none
    Activation activation;
    tensor::GradQueue* queue;
  };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, State state) {
    tensor::save_for_backward(context, "bias_activation", {{"x", x}});
    capture_state(context, state);
    return forward_rows(x, state.bias, state.activation);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const WorkSpan span(Work::kActivation, "backward");
    const State& state = captured_state<State>(context);
    const at::Tensor x = context->get_saved_variables()[0];
    const at::Tensor dy = grads[0].contiguous();
    at::Tensor dx = at::empty_like(x);
    const ActivationBackward args{.x = x.const_data_ptr(),
                                  .bias = values_of(state.bias),
                                  .dy = dy.const_data_ptr(),
                                  .dx = dx.data_ptr(),
                                  .columns = dy.size(-1)};
    const bool summed = state.bias != nullptr && state.bias->has_grad();
    const bool gated = spec::is_gated(state.activation);
    if (const DeviceOps* device = device_ops(x)) {
      const at::Tensor sum = device->activation_backward(x.scalar_type(), {function_of(state.activation), gated}, args,
                                                         num_rows(x), summed);
      if (summed) push_grad(*state.queue, *state.bias, sum);
      return {dx, {}};
    }
    const RowBlocks blocks(num_rows(x));
    ColumnSums sums(blocks, summed ? 1 : 0, x.size(-1));
    const ActivationKernels& kernels = kernels_of(x.scalar_type(), state.activation);
    const auto kernel = gated ? kernels.gated_backward : kernels.backward;
    for_each_block(blocks, x.size(-1), [&](int64_t block, int64_t first, int64_t last) {
      kernel(args, first, last, summed ? sums.partial(block) : nullptr);
    });
    if (summed) push_grad(*state.queue, *state.bias, sums.total()[0]);
    return {dx, {}};
  }
};

}  // namespace

at::Tensor bias_activation(const at::Tensor& x, tensor::Param* bias, Activation activation, tensor::GradQueue& queue) {
  ESPALIER_CHECK(x.dim() >= 1 && x.is_contiguous(), "x ", x.sizes(), " strides ", x.strides());
  ESPALIER_CHECK(!spec::is_gated(activation) || x.size(-1) % 2 == 0, "two halves of ", x.size(-1), " columns");
  if (bias != nullptr) {
    ESPALIER_CHECK(bias->value.dim() == 1 && x.size(-1) == bias->value.size(0), "x ", x.sizes(), ", bias ",
                   bias->value.sizes());
    ESPALIER_CHECK(x.scalar_type() == bias->value.scalar_type(), "x ", x.scalar_type(), ", bias ",
                   bias->value.scalar_type());
  }
  if (!builds_graph(x)) return forward_rows(x, bias, activation);
  return BiasActivation::apply(x, BiasActivation::State{bias, activation, &queue});
}

}  // namespace espalier::kernels
