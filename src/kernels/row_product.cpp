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

constexpr int64_t kTokens = PanelRowProduct::kTokens, kOutputs = PanelRowProduct::kOutputs;

int64_t grain_of(int64_t products_of_one) {
  return std::max<int64_t>(1, kMinProductsPerThread / std::max<int64_t>(1, products_of_one));
}
at::Tensor scratch_of(at::ScalarType type, int64_t elements) {
  return at::empty({elements}, at::TensorOptions().dtype(type));
}

// work(begin, end), in parallel, of the blocks of so many outputs.
template <class Work>
void for_each_block(const RowProduct& args, int64_t outputs, const Work& work) {
  at::parallel_for(0, (args.outputs + outputs - 1) / outputs, grain_of(args.tokens * args.inputs * outputs), work);
}

#ifndef __aarch64__
void multiply_on_tiles(const RowProduct& args) {
  const int64_t inputs = amx::padded_inputs(args), panels = amx::token_panels(args);
  const auto bits = [](const at::Tensor& x) { return static_cast<uint16_t*>(x.mutable_data_ptr()); };
  const at::Tensor packed = scratch_of(at::kBFloat16, panels * amx::kTokenPanel * inputs);
  at::parallel_for(0, panels, grain_of(amx::kTokenPanel * inputs), [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) amx::pack_tokens(args, panel, bits(packed));
  });
  for_each_block(args, amx::kTileOutputs, [&](int64_t begin, int64_t end) {
    const at::Tensor padded = scratch_of(at::kBFloat16, amx::kTileOutputs * inputs);
    amx::row_product_bf16(args, bits(packed), begin, end, bits(padded));
  });
}
#endif

// Tokens begin .. end - 1 of a product.
RowProduct part_of(RowProduct args, int64_t begin, int64_t end, int64_t type_bytes) {
  const int64_t result_bytes = args.fp32_result ? static_cast<int64_t>(sizeof(float)) : type_bytes;
  args.x = static_cast<const char*>(args.x) + begin * args.inputs * type_bytes;
  args.y = static_cast<char*>(args.y) + begin * args.outputs * result_bytes;
  args.tokens = end - begin;
  return args;
}

void multiply_by_panels(const RowProduct& args, at::ScalarType type) {
  const TypedRowKernels& kernels = row_kernels(type);
  const int64_t panels = (args.tokens + kTokens - 1) / kTokens, blocks = (args.outputs + kOutputs - 1) / kOutputs;
  const int64_t panel_size = PanelRowProduct::tokens_size(args.inputs);
  const auto tokens = [&](int64_t begin, int64_t end) {  // of those panels
    return part_of(args, begin * kTokens, std::min(end * kTokens, args.tokens),
                   static_cast<int64_t>(at::elementSize(type)));
  };
  const at::Tensor x = scratch_of(at::kFloat, panels * panel_size);
  auto* const packed = x.mutable_data_ptr<float>();
  at::parallel_for(0, panels, grain_of(panel_size), [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      const RowProduct rows = tokens(panel, panel + 1);
      kernels.pack_tokens({.values = rows.x, .stride = rows.inputs, .count = rows.tokens, .depth = rows.inputs},
                          packed + panel * panel_size);
    }
  });
  // Where there are too few blocks for all threads, tokens are divided too, and a block is turned for each share.
  const int64_t wanted = std::clamp<int64_t>(2 * at::get_num_threads() / blocks, 1, panels);
  const int64_t share = (panels + wanted - 1) / wanted, shares = (panels + share - 1) / share;
  const int64_t products = kTokens * kOutputs * share * args.inputs;
  at::parallel_for(0, blocks * shares, grain_of(products), [&](int64_t begin, int64_t end) {
    const at::Tensor scratch = scratch_of(at::kFloat, PanelRowProduct::scratch_size(args.inputs));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % shares * share, last = std::min(first + share, panels);
      kernels.panel_row_product({tokens(first, last), packed + first * panel_size, scratch.mutable_data_ptr<float>()},
                                i / shares);
    }
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
  const auto multiply_blocks = [&](void (*multiply)(const RowProduct&, int64_t block)) {
    for_each_block(args, kProductBlock, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) multiply(args, block);
    });
    return y;
  };
#ifndef __aarch64__
  if (type == at::kBFloat16 && cpu_isa() == CpuIsa::kAmx) {
    if (args.tokens > 0) multiply_on_tiles(args);
    return y;
  }
  if (type == at::kBFloat16 && cpu_isa() >= CpuIsa::kAvx512Bf16) return multiply_blocks(avx512bf16::row_product_bf16);
#endif
  if (args.tokens < PanelRowProduct::kLeastTokens) return multiply_blocks(row_kernels(type).row_product);
  if (args.outputs > 0) multiply_by_panels(args, type);
  return y;
}

}  // namespace espalier::kernels
