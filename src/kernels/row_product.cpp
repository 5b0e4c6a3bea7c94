#include "kernels/row_product.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "kernels/int8_weights.h"
#include "kernels/internal/row_dispatch.h"

namespace espalier::kernels {
namespace {

constexpr int64_t kMinProductsPerThread = 1 << 16;

#ifndef __aarch64__
at::Tensor bf16_scratch(int64_t elements) { return at::empty({elements}, at::TensorOptions().dtype(at::kBFloat16)); }
uint16_t* bits_of(const at::Tensor& x) { return static_cast<uint16_t*>(x.mutable_data_ptr()); }

void multiply_on_tiles(const RowProduct& args) {
  const int64_t inputs = amx::padded_inputs(args), panels = amx::token_panels(args);
  const at::Tensor packed = bf16_scratch(panels * amx::kTokenPanel * inputs);
  const auto at_least_one = [](int64_t value) { return std::max<int64_t>(1, value); };
  at::parallel_for(0, panels, at_least_one(kMinProductsPerThread / (amx::kTokenPanel * inputs)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t panel = begin; panel < end; ++panel) amx::pack_tokens(args, panel, bits_of(packed));
                   });
  const int64_t products = args.tokens * args.inputs * amx::kTileOutputs;
  at::parallel_for(0, (args.outputs + amx::kTileOutputs - 1) / amx::kTileOutputs,
                   at_least_one(kMinProductsPerThread / products), [&](int64_t begin, int64_t end) {
                     const at::Tensor padded = bf16_scratch(amx::kTileOutputs * inputs);
                     amx::row_product_bf16(args, bits_of(packed), begin, end, bits_of(padded));
                   });
}
#endif

}  // namespace

at::Tensor row_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, at::ScalarType result) {
  if (has_int8_rows(weight)) return int8_row_product(x, weight, bias, result);
  const at::ScalarType type = x.scalar_type();
  ESPALIER_CHECK(x.is_cpu() && x.dim() == 2 && x.is_contiguous() && weight.is_contiguous() &&
                     x.size(1) == weight.size(1) && weight.scalar_type() == type,
                 "x is ", x.sizes(), ", weight ", weight.sizes());
  ESPALIER_CHECK(x.size(1) > 0, "a product of no inputs");
  ESPALIER_CHECK(!bias.defined() || (bias.is_contiguous() && bias.scalar_type() == type), "bias");
  ESPALIER_CHECK(result == type || result == at::kFloat, "result ", result);
  const at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options().dtype(result));
  const RowProduct args{.x = x.const_data_ptr(),
                        .weight = weight.const_data_ptr(),
                        .bias = bias.defined() ? bias.const_data_ptr() : nullptr,
                        .y = y.data_ptr(),
                        .tokens = x.size(0),
                        .outputs = weight.size(0),
                        .inputs = x.size(1),
                        .fp32_result = result == at::kFloat};
  auto multiply = row_kernels(type).row_product;
#ifndef __aarch64__
  if (type == at::kBFloat16 && cpu_isa() == CpuIsa::kAmx) {
    if (args.tokens > 0) multiply_on_tiles(args);
    return y;
  }
  if (type == at::kBFloat16 && cpu_isa() >= CpuIsa::kAvx512Bf16) multiply = avx512bf16::row_product_bf16;
#endif
  const int64_t products = std::max<int64_t>(1, args.tokens * args.inputs * kProductBlock);
  at::parallel_for(0, (args.outputs + kProductBlock - 1) / kProductBlock,
                   std::max<int64_t>(1, kMinProductsPerThread / products), [&](int64_t begin, int64_t end) {
                     for (int64_t block = begin; block < end; ++block) multiply(args, block);
                   });
  return y;
}

}  // namespace espalier::kernels
