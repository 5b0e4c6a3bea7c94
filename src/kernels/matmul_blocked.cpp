#include "kernels/matmul_blocked.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/dispatch.h"

namespace espalier::kernels {
namespace {

// What may stay in a core's second-level cache beside what streams through it: 1 MiB on Zen 4, 2 MiB on Sapphire Rapids.
constexpr int64_t kCacheBytes = 768 << 10;
// Tokens summed in registers before the weight gradient in memory is added to.
constexpr int64_t kGradTokens = 1024;

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }
int64_t num_panels(int64_t size) { return (size + kPanel - 1) / kPanel; }

const uint16_t* data(const at::Tensor& x) { return static_cast<const uint16_t*>(x.const_data_ptr()); }
at::Tensor scratch(int64_t elements) { return at::empty({elements}, at::TensorOptions().dtype(at::kBFloat16)); }
uint16_t* scratch_data(const at::Tensor& x) { return static_cast<uint16_t*>(x.mutable_data_ptr()); }

// The A panel that begins at `row`: in place where all of it is readable, else a padded copy.
class RowPanels {
 public:
  RowPanels(const at::Tensor& a, int64_t depth)
      : values_(data(a)), rows_(a.size(0)), stride_(a.size(1)), depth_(depth), copy_(scratch(kPanel * depth)) {}

  PanelProduct product(int64_t row) const {
    const int64_t rows = std::min(kPanel, rows_ - row);
    const uint16_t* first = values_ + row * stride_;
    if (rows == kPanel && stride_ == depth_) return {.a = first, .a_stride = stride_, .b = nullptr, .depth = depth_, .rows = rows, .columns = 0};
    uint16_t* copy = scratch_data(copy_);
    pack_a({first, stride_}, rows, stride_, copy);
    return {.a = copy, .a_stride = depth_, .b = nullptr, .depth = depth_, .rows = rows, .columns = 0};
  }

 private:
  const uint16_t* values_;
  int64_t rows_, stride_, depth_;
  at::Tensor copy_;
};

// y [rows, b.columns] = round(a b + bias), `a` row-major.
void multiply_rows(const Bf16Kernels& kernels, const at::Tensor& a, const PackedB& b, const at::Tensor& bias,
                   const at::Tensor& y) {
  const int64_t columns = b.columns;
  const int64_t block = std::max(kPanel, kCacheBytes / (b.depth * 2) / kPanel * kPanel);
  const uint16_t* bias_values = bias.defined() ? data(bias) : nullptr;
  uint16_t* out = scratch_data(y);
  at::parallel_for(0, num_panels(a.size(0)), 1, [&](int64_t begin, int64_t end) {
    const RowPanels panels(a, b.depth);
    for (int64_t first = 0; first < columns; first += block) {
      for (int64_t panel = begin; panel < end; ++panel) {
        PanelProduct product = panels.product(panel * kPanel);
        product.b = b.panel(first);
        product.columns = std::min(block, columns - first);
        kernels.store_bf16(product, bias_values == nullptr ? nullptr : bias_values + first,
                           out + panel * kPanel * columns + first, columns);
      }
    }
  });
}

// grad += dy^T x over the tokens of one block. dy [tokens, outputs], x [tokens, inputs] start at the block.
void add_block(const Bf16Kernels& kernels, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& grad) {
  const int64_t tokens = dy.size(0), outputs = dy.size(1), inputs = x.size(1);
  const PackedB b = pack_rows(x);
  float* out = grad.mutable_data_ptr<float>();
  const int64_t panel_elements = kPanel * b.depth;
  const int64_t cached = std::max<int64_t>(1, kCacheBytes / (panel_elements * 2));
  // Two thirds of the cache for panels of dy^T, one for x.
  const int64_t group = cached, block = std::max(kPanel, cached * 2 / 3 * kPanel);
  at::parallel_for(0, num_panels(outputs), 1, [&](int64_t begin, int64_t end) {
    const at::Tensor packed = scratch(std::min(group, end - begin) * panel_elements);
    uint16_t* a = scratch_data(packed);
    for (int64_t first = begin; first < end; first += group) {
      const int64_t last = std::min(end, first + group);
      for (int64_t panel = first; panel < last; ++panel) {
        pack_a_transposed({data(dy) + panel * kPanel, outputs}, std::min(kPanel, outputs - panel * kPanel), tokens,
                          a + (panel - first) * panel_elements);
      }
      for (int64_t column = 0; column < inputs; column += block) {
        for (int64_t panel = first; panel < last; ++panel) {
          const PanelProduct product{.a = a + (panel - first) * panel_elements, .a_stride = b.depth, .b = b.panel(column),
                                     .depth = b.depth, .rows = std::min(kPanel, outputs - panel * kPanel),
                                     .columns = std::min(block, inputs - column)};
          kernels.add(product, out + panel * kPanel * inputs + column, inputs);
        }
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

const uint16_t* PackedB::panel(int64_t column) const { return data(values) + column * depth; }

PackedB pack_columns(const at::Tensor& weight) {
  const int64_t columns = weight.size(0), inner = weight.size(1);
  PackedB b{.values = {}, .depth = round_up(inner, kDepthUnit), .columns = columns};
  b.values = scratch(round_up(columns, kPanel) * b.depth);
  at::parallel_for(0, num_panels(columns), 1, [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      pack_b_transposed({data(weight) + panel * kPanel * inner, inner}, std::min(kPanel, columns - panel * kPanel), inner,
                        scratch_data(b.values) + panel * kPanel * b.depth);
    }
  });
  return b;
}

PackedB pack_rows(const at::Tensor& weight) {
  const int64_t inner = weight.size(0), columns = weight.size(1);
  PackedB b{.values = {}, .depth = round_up(inner, kDepthUnit), .columns = columns};
  b.values = scratch(round_up(columns, kPanel) * b.depth);
  at::parallel_for(0, num_panels(columns), 1, [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      pack_b({data(weight) + panel * kPanel, columns}, std::min(kPanel, columns - panel * kPanel), inner,
             scratch_data(b.values) + panel * kPanel * b.depth);
    }
  });
  return b;
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
  for (int64_t first = 0; first < dy.size(0); first += kGradTokens) {
    const int64_t tokens = std::min(kGradTokens, dy.size(0) - first);
    add_block(kernels, dy.narrow(0, first, tokens), x.narrow(0, first, tokens), grad);
  }
}

}  // namespace espalier::kernels
