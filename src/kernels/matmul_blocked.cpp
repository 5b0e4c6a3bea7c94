#include "kernels/matmul_blocked.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <unistd.h>

#include "base/cpu_isa.h"

namespace espalier::kernels {
namespace {

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

at::Tensor scratch(int64_t elements) { return at::empty({elements}, at::TensorOptions().dtype(at::kBFloat16)); }

// Calls pack(first column, columns, first depth, depths, block) for each block of B, on all threads. The depth runs
// outside where the rows of the source run along the columns, so that memory is read as it is.
template <class Pack>
PackedB pack_blocks(int64_t columns, int64_t depth, bool depth_outside, Pack pack) {
  PackedB b{.values = {}, .depth = round_up(depth, kDepthUnit), .columns = columns};
  b.values = scratch(round_up(columns, kPanel) * b.depth);
  uint16_t* panels = mutable_bf16_data(b.values);
  const auto pack_block = [&](int64_t column, int64_t at) {
    pack(column, std::min(kPanel, columns - column), at, std::min(kDepthUnit, depth - at),
         panels + column * b.depth + at * kPanel);
  };
  at::parallel_for(0, num_panels(columns), 1, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kPanel, last = std::min(end * kPanel, columns);
    if (depth_outside) {
      for (int64_t at = 0; at < depth; at += kDepthUnit) {
        for (int64_t column = first; column < last; column += kPanel) pack_block(column, at);
      }
    } else {
      for (int64_t column = first; column < last; column += kPanel) {
        for (int64_t at = 0; at < depth; at += kDepthUnit) pack_block(column, at);
      }
    }
  });
  return b;
}

// y [rows, b.columns] = round(a b + bias), `a` row-major.
void multiply_rows(const Bf16Kernels& kernels, const at::Tensor& a, const PackedB& b, const at::Tensor& bias,
                   const at::Tensor& y) {
  const int64_t columns = b.columns, block = cached_columns(b.depth);
  const uint16_t* bias_values = bias.defined() ? bf16_data(bias) : nullptr;
  uint16_t* out = mutable_bf16_data(y);
  at::parallel_for(0, num_panels(a.size(0)), 1, [&](int64_t begin, int64_t end) {
    const RowPanels panels(a, b.depth);
    for (int64_t first = 0; first < columns; first += block) {
      for (int64_t row = begin * kPanel; row < end * kPanel; row += kPanel) {
        PanelProduct product = panels.product(row);
        product.b = b.panel(first);
        product.columns = std::min(block, columns - first);
        kernels.store_bf16(product, bias_values == nullptr ? nullptr : bias_values + first, out + row * columns + first,
                           columns);
      }
    }
  });
}

}  // namespace

const Bf16Kernels* bf16_kernels() {
#ifdef __aarch64__
  if (cpu_isa() == CpuIsa::kNeonBf16) return &kNeonBf16Kernels;
#else
  if (cpu_isa() == CpuIsa::kAmx) return &kAmxKernels;
  if (cpu_isa() == CpuIsa::kAvx512Bf16) return &kAvx512Bf16Kernels;
#endif
  return nullptr;
}

int64_t cached_bytes() {
  static const int64_t bytes = std::clamp<int64_t>(sysconf(_SC_LEVEL2_CACHE_SIZE) / 8 * 5, 256 << 10, 1280 << 10);
  return bytes;
}

int64_t cached_columns(int64_t depth) { return std::max(kPanel, cached_bytes() / (depth * 2) / kPanel * kPanel); }

PackedB pack_columns(const at::Tensor& weight) {
  const int64_t depth = weight.size(1);
  const uint16_t* values = bf16_data(weight);
  return pack_blocks(weight.size(0), depth, /*depth_outside=*/false,
                     [=](int64_t column, int64_t columns, int64_t at, int64_t depths, uint16_t* block) {
                       pack_b_transposed({values + column * depth + at, depth}, columns, depths, block);
                     });
}

PackedB pack_rows(const at::Tensor& weight) {
  const int64_t depth = weight.size(0), stride = weight.size(1);
  const uint16_t* values = bf16_data(weight);
  return pack_blocks(stride, depth, /*depth_outside=*/true,
                     [=](int64_t column, int64_t columns, int64_t at, int64_t depths, uint16_t* block) {
                       pack_b({values + at * stride + column, stride}, columns, depths, block);
                     });
}

RowPanels::RowPanels(const at::Tensor& a, int64_t padded_depth)
    : values_(bf16_data(a)), rows_(a.size(0)), stride_(a.size(1)), depth_(padded_depth) {
  if (rows_ % kPanel != 0 || stride_ != depth_) copy_ = scratch(kPanel * depth_);
}

PanelProduct RowPanels::product(int64_t row) const {
  PanelProduct product{.a = values_ + row * stride_,
                       .a_stride = depth_,
                       .a_step = kDepthUnit,
                       .b = nullptr,
                       .depth = depth_,
                       .rows = std::min(kPanel, rows_ - row),
                       .columns = 0};
  if (product.rows == kPanel && stride_ == depth_) return product;
  pack_a({product.a, stride_}, product.rows, stride_, mutable_bf16_data(copy_));
  product.a = bf16_data(copy_);
  return product;
}

void add_transposed(const Bf16Kernels& kernels, const TransposedProduct& product, int64_t begin, int64_t end) {
  const PackedB& b = product.b;
  const int64_t panel_elements = kPanel * b.depth;
  // Panels of A fill the cache; a few of B pass by, each used by all of them.
  const int64_t most = cached_columns(b.depth) / kPanel, num_groups = (end - begin + most - 1) / most;
  const int64_t group = (end - begin + num_groups - 1) / num_groups, block = std::max<int64_t>(1, most / 8) * kPanel;
  const at::Tensor packed = scratch(group * panel_elements);
  uint16_t* a = mutable_bf16_data(packed);
  for (int64_t first = begin; first < end; first += group) {
    const int64_t last = std::min(end, first + group);
    for (int64_t at = 0; at < product.depth; at += kDepthUnit) {
      for (int64_t panel = first; panel < last; ++panel) {
        const int64_t row = panel * kPanel;
        kernels.pack_transposed({product.a + at * product.stride + row, product.stride},
                                std::min(kPanel, product.rows - row), std::min(kDepthUnit, product.depth - at),
                                a + (panel - first) * panel_elements + at * kPanel);
      }
    }
    for (int64_t column = 0; column < b.columns; column += block) {
      for (int64_t panel = first; panel < last; ++panel) {
        const int64_t row = panel * kPanel;
        kernels.add_packed({.a = a + (panel - first) * panel_elements,
                            .a_stride = kDepthUnit,
                            .a_step = kBlockElements,
                            .b = b.panel(column),
                            .depth = b.depth,
                            .rows = std::min(kPanel, product.rows - row),
                            .columns = std::min(block, b.columns - column)},
                           product.c + row * b.columns + column, b.columns);
      }
    }
  }
}

at::Tensor blocked_forward(const Bf16Kernels& kernels, const at::Tensor& x, const at::Tensor& weight,
                           const at::Tensor& bias) {
  const at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
  multiply_rows(kernels, x, pack_columns(weight), bias, y);
  return y;
}

at::Tensor blocked_input_grad(const Bf16Kernels& kernels, const at::Tensor& dy, const at::Tensor& weight) {
  const at::Tensor dx = at::empty({dy.size(0), weight.size(1)}, dy.options());
  multiply_rows(kernels, dy, pack_rows(weight), {}, dx);
  return dx;
}

void blocked_weight_grad(const Bf16Kernels& kernels, const at::Tensor& dy, const at::Tensor& x,
                         const at::Tensor& grad) {
  const int64_t outputs = dy.size(1);
  for (int64_t first = 0; first < dy.size(0); first += kGradTokens) {
    const int64_t tokens = std::min(kGradTokens, dy.size(0) - first);
    const PackedB b = pack_rows(x.narrow(0, first, tokens));
    const TransposedProduct product{.a = bf16_data(dy) + first * outputs,
                                    .stride = outputs,
                                    .depth = tokens,
                                    .rows = outputs,
                                    .b = b,
                                    .c = grad.mutable_data_ptr<float>()};
    at::parallel_for(0, num_panels(outputs), 1,
                     [&](int64_t begin, int64_t end) { add_transposed(kernels, product, begin, end); });
  }
}

}  // namespace espalier::kernels
