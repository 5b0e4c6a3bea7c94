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

int64_t product_grain(int64_t products_of_one) {
  return std::max<int64_t>(1, kMinProductsPerThread / std::max<int64_t>(1, products_of_one));
}
at::Tensor product_scratch(int64_t elements) { return at::empty({elements}, at::TensorOptions().dtype(at::kFloat)); }

// work(begin, end), in parallel, of the blocks of so many outputs.
template <class Work>
void for_each_product_block(const RowProduct& args, int64_t outputs, const Work& work) {
  at::parallel_for(0, (args.outputs + outputs - 1) / outputs, product_grain(args.tokens * args.inputs * outputs), work);
}

#ifndef __aarch64__
at::Tensor bf16_scratch(int64_t elements) { return at::empty({elements}, at::TensorOptions().dtype(at::kBFloat16)); }
uint16_t* bits_of(const at::Tensor& x) { return static_cast<uint16_t*>(x.mutable_data_ptr()); }

void multiply_on_tiles(const RowProduct& args) {
  const int64_t inputs = amx::padded_inputs(args), panels = amx::token_panels(args);
  const at::Tensor packed = bf16_scratch(panels * amx::kTokenPanel * inputs);
  at::parallel_for(0, panels, product_grain(amx::kTokenPanel * inputs), [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) amx::pack_tokens(args, panel, bits_of(packed));
  });
  for_each_product_block(args, amx::kTileOutputs, [&](int64_t begin, int64_t end) {
    const at::Tensor padded = bf16_scratch(amx::kTileOutputs * inputs);
    amx::row_product_bf16(args, bits_of(packed), begin, end, bits_of(padded));
  });
}
#endif

// x as WideRowProduct takes it.
at::Tensor in_panels(const RowProduct& args, at::ScalarType type) {
  const int64_t panels = (args.tokens + kWidePanel - 1) / kWidePanel;
  const at::Tensor packed = product_scratch(panels * kWidePanel * args.inputs);
  auto* const to = packed.mutable_data_ptr<float>();
  const auto pack = row_kernels(type).pack_across;
  const auto* const from = static_cast<const char*>(args.x);
  const auto bytes = static_cast<int64_t>(at::elementSize(type));
  at::parallel_for(0, panels, product_grain(kWidePanel * args.inputs), [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t token = panel * kWidePanel;
      pack({.values = from + token * args.inputs * bytes,
            .stride = args.inputs,
            .count = std::min(kWidePanel, args.tokens - token),
            .depth = args.inputs},
           to + token * args.inputs);
    }
  });
  return packed;
}

void multiply_in_fp32(const RowProduct& args, const at::Tensor& x) {
  const at::Tensor wide =
      args.tokens >= WideRowProduct::kMinPanelTokens ? in_panels(args, x.scalar_type()) : x.to(at::kFloat);
  const auto multiply = row_kernels(x.scalar_type()).row_product;
  for_each_product_block(args, kWidePanel, [&](int64_t begin, int64_t end) {
    const at::Tensor scratch = product_scratch(WideRowProduct::scratch_size(args.tokens));
    const WideRowProduct product{args, wide.const_data_ptr<float>(), scratch.mutable_data_ptr<float>()};
    for (int64_t block = begin; block < end; ++block) multiply(product, block);
  });
}

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
#ifndef __aarch64__
  if (type == at::kBFloat16 && cpu_isa() == CpuIsa::kAmx) {
    if (args.tokens > 0) multiply_on_tiles(args);
    return y;
  }
  if (type == at::kBFloat16 && cpu_isa() >= CpuIsa::kAvx512Bf16) {
    for_each_product_block(args, kProductBlock, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) avx512bf16::row_product_bf16(args, block);
    });
    return y;
  }
#endif
  multiply_in_fp32(args, x);
  return y;
}

}  // namespace espalier::kernels
