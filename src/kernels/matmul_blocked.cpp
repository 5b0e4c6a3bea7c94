#include "kernels/matmul_blocked.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <unistd.h>

#include "kernels/dispatch.h"

namespace espalier::kernels {
namespace {

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

at::Tensor scratch(int64_t elements) { return at::empty({elements}, at::TensorOptions().dtype(at::kBFloat16)); }

// What may stay in a core's second-level cache beside what streams through it: five eighths.
int64_t cached_bytes() {
  static const int64_t bytes = std::clamp<int64_t>(sysconf(_SC_LEVEL2_CACHE_SIZE) / 8 * 5, 256 << 10, 1280 << 10);
  return bytes;
}

// Calls pack(first column, columns, panel) for each panel of B, on all threads.
template <class Pack>
PackedB pack_panels(int64_t columns, int64_t depth, Pack pack) {
  PackedB b{.values = {}, .depth = round_up(depth, kDepthUnit), .columns = columns};
  b.values = scratch(round_up(columns, kPanel) * b.depth);
  uint16_t* panels = mutable_bf16_data(b.values);
  at::parallel_for(0, num_panels(columns), 1, [&](int64_t begin, int64_t end) {
    for (int64_t column = begin * kPanel; column < std::min(end * kPanel, columns); column += kPanel) {
      pack(column, std::min(kPanel, columns - column), panels + column * b.depth);
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
  switch (cpu_isa()) {
    case CpuIsa::kAmx: return &kAmxKernels;
    case CpuIsa::kAvx512Bf16: return &kAvx512Bf16Kernels;
    default: return nullptr;
  }
}

int64_t cached_columns(int64_t depth) { return std::max(kPanel, cached_bytes() / (depth * 2) / kPanel * kPanel); }

PackedB pack_columns(const at::Tensor& weight) {
  const int64_t depth = weight.size(1);
  const uint16_t* values = bf16_data(weight);
  return pack_panels(weight.size(0), depth, [=](int64_t first, int64_t columns, uint16_t* panel) {
    pack_b_transposed({values + first * depth, depth}, columns, depth, panel);
  });
}

PackedB pack_rows(const at::Tensor& weight) {
  const int64_t depth = weight.size(0), stride = weight.size(1);
  const uint16_t* values = bf16_data(weight);
  return pack_panels(stride, depth, [=](int64_t first, int64_t columns, uint16_t* panel) {
    pack_b({values + first, stride}, columns, depth, panel);
  });
}

RowPanels::RowPanels(const at::Tensor& a, int64_t padded_depth)
    : values_(bf16_data(a)), rows_(a.size(0)), stride_(a.size(1)), depth_(padded_depth) {
  if (rows_ % kPanel != 0 || stride_ != depth_) copy_ = scratch(kPanel * depth_);
}

PanelProduct RowPanels::product(int64_t row) const {
  const int64_t rows = std::min(kPanel, rows_ - row);
  PanelProduct product{.a = values_ + row * stride_, .a_stride = stride_, .b = nullptr, .depth = depth_, .rows = rows, .columns = 0};
  if (rows == kPanel && stride_ == depth_) return product;
  pack_a({product.a, stride_}, rows, stride_, mutable_bf16_data(copy_));
  product.a = bf16_data(copy_);
  product.a_stride = depth_;
  return product;
}

void add_transposed(const Bf16Kernels& kernels, const TransposedProduct& product) {
  const PackedB& b = product.b;
  const int64_t panel_elements = kPanel * b.depth;
  // Panels of A fill the cache; a few of B pass by, each used by all of them.
  const int64_t group = cached_columns(b.depth) / kPanel, block = std::max<int64_t>(1, group / 8) * kPanel;
  at::parallel_for(0, num_panels(product.rows), 1, [&](int64_t begin, int64_t end) {
    const at::Tensor packed = scratch(std::min(group, end - begin) * panel_elements);
    uint16_t* a = mutable_bf16_data(packed);
    for (int64_t first = begin; first < end; first += group) {
      const int64_t last = std::min(end, first + group);
      for (int64_t panel = first; panel < last; ++panel) {
        const int64_t row = panel * kPanel;
        pack_a_transposed({product.a + row, product.stride}, std::min(kPanel, product.rows - row), product.depth,
                          a + (panel - first) * panel_elements);
      }
      for (int64_t column = 0; column < b.columns; column += block) {
        for (int64_t panel = first; panel < last; ++panel) {
          const int64_t row = panel * kPanel;
          kernels.add({.a = a + (panel - first) * panel_elements, .a_stride = b.depth, .b = b.panel(column), .depth = b.depth,
                       .rows = std::min(kPanel, product.rows - row), .columns = std::min(block, b.columns - column)},
                      product.c + row * b.columns + column, b.columns);
        }
      }
    }
  });
}

at::Tensor blocked_forward(const Bf16Kernels& kernels, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
  multiply_rows(kernels, x, pack_columns(weight), bias, y);
  return y;
}

at::Tensor blocked_input_grad(const Bf16Kernels& kernels, const at::Tensor& dy, const at::Tensor& weight) {
  const at::Tensor dx = at::empty({dy.size(0), weight.size(1)}, dy.options());
  multiply_rows(kernels, dy, pack_rows(weight), {}, dx);
  return dx;
}

void blocked_weight_grad(const Bf16Kernels& kernels, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& grad) {
  const int64_t outputs = dy.size(1);
  for (int64_t first = 0; first < dy.size(0); first += kGradTokens) {
    const int64_t tokens = std::min(kGradTokens, dy.size(0) - first);
    const PackedB b = pack_rows(x.narrow(0, first, tokens));
    add_transposed(kernels, {.a = bf16_data(dy) + first * outputs, .stride = outputs, .depth = tokens, .rows = outputs,
                             .b = b, .c = grad.mutable_data_ptr<float>()});
  }
}

}  // namespace espalier::kernels
