#include "kernels/fp8_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/log.h"
#include "base/work_profile.h"
#include "kernels/captured.h"
#include "kernels/device_ops.h"
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
using Sides = DeviceOps::Fp8Sides;

// Of x: on the CPU its rounded values, on a device its codes, transposed, and their scale.
struct Kept {
  at::Tensor x, scale;
};

at::Tensor as_token_rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

at::Tensor bias_value(const Param* bias) { return bias == nullptr ? at::Tensor() : bias->value; }

// ---- on the CPU

at::Tensor forward_of_values(const at::Tensor& x, const Param& weight, const Param* bias, Kept* kept) {
  const at::Tensor rounded = round_to_fp8(x, Fp8Format::kE4M3);
  if (kept != nullptr) *kept = {rounded, {}};
  return matmul_forward(rounded, round_to_fp8(weight.value, Fp8Format::kE4M3), bias_value(bias));
}

at::Tensor backward_of_values(const at::Tensor& dy, Param& weight, const Kept& kept, Fp8Format format,
                              GradQueue& queue) {
  const at::Tensor rounded = round_to_fp8(dy, format);
  at::Tensor dx = matmul_input_grad(rounded, round_to_fp8(weight.value, Fp8Format::kE4M3));
  queue.push_write(
      weight, [&weight, rounded, x = kept.x](GradWrite write) { matmul_weight_grad(rounded, x, weight.grad, write); });
  return dx;
}

// ---- on a device, of codes

// to [m, n] = a b^T, or to += a b^T: products take codes that lie along the depth.
struct CodeProduct {
  const char* what;
  DeviceOps::Fp8Codes a, b;
  at::Tensor bias;
  at::Tensor to;
  bool add = false;
};
void multiply_codes(const DeviceOps& device, const CodeProduct& product) {
  const WorkSpan span(Work::kProduct, product.what, {product.to.size(0), product.to.size(1), product.a.codes.size(1)});
  const char* const why = device.fp8_product(product.a, product.b, product.bias, product.to, product.add);
  if (why != nullptr)
    warn_once(concat(
        "products of fp8 are computed in bf16, of the same rounded numbers, which is slower than --bf16 alone: ", why));
}

DeviceOps::Fp8Matrix codes_of(const DeviceOps& device, const at::Tensor& x, Fp8Format format, Sides sides) {
  const WorkSpan span(Work::kActivation, "rounding to fp8");
  return device.to_fp8(x, format, sides);
}

at::Tensor forward_of_codes(const DeviceOps& device, const at::Tensor& x, const Param& weight, const Param* bias,
                            Kept* kept) {
  const auto codes = codes_of(device, x, Fp8Format::kE4M3, kept == nullptr ? Sides::kPlain : Sides::kBoth);
  const auto weights = codes_of(device, weight.value, Fp8Format::kE4M3, Sides::kPlain);
  at::Tensor y = at::empty({x.size(0), weight.value.size(0)}, x.options());
  multiply_codes(device, {.what = "forward",
                          .a = {codes.plain, codes.scale},
                          .b = {weights.plain, weights.scale},
                          .bias = bias_value(bias),
                          .to = y});
  if (kept != nullptr) *kept = {codes.transposed, codes.scale};
  return y;
}

at::Tensor backward_of_codes(const DeviceOps& device, const at::Tensor& dy, Param& weight, const Kept& kept,
                             Fp8Format format, GradQueue& queue) {
  const auto codes = codes_of(device, dy, format, Sides::kBoth);
  const auto weights = codes_of(device, weight.value, Fp8Format::kE4M3, Sides::kTransposed);
  at::Tensor dx = at::empty({dy.size(0), weight.value.size(1)}, dy.options());
  multiply_codes(device, {.what = "input gradient",
                          .a = {codes.plain, codes.scale},
                          .b = {weights.transposed, weights.scale},
                          .bias = {},
                          .to = dx});
  queue.push_write(weight, [&device, &weight, dy_codes = codes.transposed, scale = codes.scale, kept](GradWrite write) {
    multiply_codes(device, {.what = "weight gradient",
                            .a = {dy_codes, scale},
                            .b = {kept.x, kept.scale},
                            .bias = {},
                            .to = weight.grad,
                            .add = write == GradWrite::kAdd});
  });
  return dx;
}

// ---- the layer

// kept: nullptr where there will be no backward.
at::Tensor compute_rounded(const at::Tensor& x, const Param& weight, const Param* bias, Kept* kept) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = weight.value.size(0);
  const DeviceOps* const device = device_ops(x);
  return (device != nullptr ? forward_of_codes(*device, as_token_rows(x), weight, bias, kept)
                            : forward_of_values(as_token_rows(x), weight, bias, kept))
      .view(shape);
}

struct Fp8LinearFunction : torch::autograd::Function<Fp8LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, Param* weight, Param* bias, GradQueue* queue,
                            int64_t gradient_format) {
    capture(context, "weight", weight);
    capture(context, "bias", bias);
    capture(context, "queue", queue);
    context->saved_data["gradient_format"] = gradient_format;
    context->saved_data["shape"] = x.sizes();
    Kept kept;
    at::Tensor y = compute_rounded(x, *weight, bias, &kept);
    if (kept.scale.defined())
      tensor::save_for_backward(context, "linear", {{"x", kept.x}, {"scale", kept.scale}});
    else
      tensor::save_for_backward(context, "linear", {{"x", kept.x}});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    Param* weight = captured<Param>(context, "weight");
    Param* bias = captured<Param>(context, "bias");
    GradQueue* queue = captured<GradQueue>(context, "queue");
    const auto format = static_cast<Fp8Format>(context->saved_data.at("gradient_format").toInt());
    const variable_list saved = context->get_saved_variables();
    const Kept kept{saved[0], saved.size() > 1 ? saved[1] : at::Tensor()};
    const at::Tensor dy = as_token_rows(grads[0].contiguous());
    const DeviceOps* const device = device_ops(dy);
    const at::Tensor dx = device != nullptr ? backward_of_codes(*device, dy, *weight, kept, format, *queue)
                                            : backward_of_values(dy, *weight, kept, format, *queue);
    // Summed now, although it may be added later: dy itself need not stay until then.
    if (bias != nullptr) push_grad(*queue, *bias, column_sums(dy));
    return {dx.view(context->saved_data.at("shape").toIntVector()), {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor fp8_linear(const at::Tensor& x, Param& weight, Param* bias, GradQueue& queue, spec::Fp8 fp8) {
  if (!builds_graph(x)) return compute_rounded(x, weight, bias, nullptr);
  return Fp8LinearFunction::apply(x, &weight, bias, &queue, static_cast<int64_t>(spec::gradient_format(fp8)));
}

}  // namespace espalier::kernels
