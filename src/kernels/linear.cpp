#include "kernels/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "kernels/captured.h"
#include "kernels/device_ops.h"
#include "kernels/fp8_linear.h"
#include "kernels/int8_weights.h"
#include "kernels/matmul.h"
#include "kernels/row_product.h"
#include "tensor/saved.h"

namespace espalier::kernels {
namespace {

using tensor::GradQueue;
using tensor::GradWrite;
using tensor::Param;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [..., features] -> [tokens, features]
at::Tensor as_rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

at::Tensor compute(const at::Tensor& x, const Param& weight, const Param* bias) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = weight.value.size(0);
  // A weight that is not learnt belongs to a model in use, where a row's bits must not depend on the other rows.
  if (!weight.has_grad() && device_ops(x) == nullptr)
    return row_product(as_rows(x), weight.value, bias == nullptr ? at::Tensor() : bias->value, x.scalar_type())
        .view(shape);
  return matmul_forward(as_rows(x), weight.value, bias == nullptr ? at::Tensor() : bias->value).view(shape);
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, Param* weight, Param* bias,
                            GradQueue* queue) {
    capture(context, "weight", weight);
    capture(context, "bias", bias);
    capture(context, "queue", queue);
    tensor::save_for_backward(context, "linear", {{"x", x}});
    return compute(x, *weight, bias);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    Param* weight = captured<Param>(context, "weight");
    Param* bias = captured<Param>(context, "bias");
    GradQueue* queue = captured<GradQueue>(context, "queue");
    const at::Tensor x = context->get_saved_variables()[0];
    const at::Tensor dy = as_rows(grads[0].contiguous());
    const at::Tensor dx = matmul_input_grad(dy, weight->value).view(x.sizes());
    queue->push_write(*weight, [weight, dy, rows = as_rows(x)](GradWrite write) {
      matmul_weight_grad(dy, rows, weight->grad, write);
    });
    if (bias != nullptr) queue->push(*bias, [bias, dy] { add_column_sums(dy, bias->grad); });
    return {dx, {}, {}, {}};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, Param& weight, Param* bias, GradQueue& queue, spec::Fp8 fp8) {
  ESPALIER_CHECK(x.dim() >= 1 && x.size(-1) == num_inputs(weight.value), "x is ", x.sizes(), ", weight ",
                 weight.value.sizes());
  ESPALIER_CHECK(x.scalar_type() == weight.value.scalar_type() || (has_int8_rows(weight.value) && !weight.has_grad()),
                 "x is ", x.scalar_type(), ", weight ", weight.value.scalar_type());
  ESPALIER_CHECK(x.is_contiguous(), "strides of x: ", x.strides());
  if (fp8 != spec::Fp8::kNone) {
    ESPALIER_CHECK(x.scalar_type() == at::kBFloat16 && weight.value.scalar_type() == at::kBFloat16, "x is ",
                   x.scalar_type(), ", weight ", weight.value.scalar_type());
    return fp8_linear(x, weight, bias, queue, fp8);
  }
  if (!x.requires_grad() || !at::GradMode::is_enabled()) return compute(x, weight, bias);
  return LinearFunction::apply(x, &weight, bias, &queue);
}

}  // namespace espalier::kernels
