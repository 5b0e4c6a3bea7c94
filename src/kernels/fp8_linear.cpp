#include "kernels/fp8_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/captured.h"
#include "kernels/fp8.h"
#include "kernels/internal/row_dispatch.h"
#include "kernels/matmul.h"
#include "tensor/saved.h"

namespace espalier::kernels {
namespace {

using spec::Fp8Format;
using tensor::GradQueue;
using tensor::GradWrite;
using tensor::Param;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor as_token_rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

at::Tensor multiply_rounded(const at::Tensor& rounded_x, const Param& weight, const Param* bias) {
  return matmul_forward(rounded_x, round_to_fp8(weight.value, Fp8Format::kE4M3),
                        bias == nullptr ? at::Tensor() : bias->value);
}

std::vector<int64_t> result_shape(const at::Tensor& x, const Param& weight) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = weight.value.size(0);
  return shape;
}

struct Fp8LinearFunction : torch::autograd::Function<Fp8LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, Param* weight, Param* bias, GradQueue* queue,
                            int64_t gradient_format) {
    capture(context, "weight", weight);
    capture(context, "bias", bias);
    capture(context, "queue", queue);
    context->saved_data["gradient_format"] = gradient_format;
    context->saved_data["shape"] = x.sizes();
    const at::Tensor rounded = round_to_fp8(as_token_rows(x), Fp8Format::kE4M3);
    tensor::save_for_backward(context, "linear", {{"x", rounded}});
    return multiply_rounded(rounded, *weight, bias).view(result_shape(x, *weight));
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    Param* weight = captured<Param>(context, "weight");
    Param* bias = captured<Param>(context, "bias");
    GradQueue* queue = captured<GradQueue>(context, "queue");
    const auto format = static_cast<Fp8Format>(context->saved_data.at("gradient_format").toInt());
    const at::Tensor x = context->get_saved_variables()[0];
    const at::Tensor dy = as_token_rows(grads[0].contiguous()), rounded = round_to_fp8(dy, format);
    const at::Tensor dx = matmul_input_grad(rounded, round_to_fp8(weight->value, Fp8Format::kE4M3))
                              .view(context->saved_data.at("shape").toIntVector());
    queue->push_write(*weight,
                      [weight, rounded, x](GradWrite write) { matmul_weight_grad(rounded, x, weight->grad, write); });
    // Summed now, although it may be added later: dy itself need not stay until then.
    if (bias != nullptr) push_grad(*queue, *bias, column_sums(dy));
    return {dx, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor fp8_linear(const at::Tensor& x, Param& weight, Param* bias, GradQueue& queue, spec::Fp8 fp8) {
  if (!builds_graph(x))
    return multiply_rounded(round_to_fp8(as_token_rows(x), Fp8Format::kE4M3), weight, bias)
        .view(result_shape(x, weight));
  return Fp8LinearFunction::apply(x, &weight, bias, &queue, static_cast<int64_t>(spec::gradient_format(fp8)));
}

}  // namespace espalier::kernels
