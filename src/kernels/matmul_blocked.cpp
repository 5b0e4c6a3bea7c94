#include "kernels/matmul_blocked.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <unistd.h>

#include "base/cpu_isa.h"

namespace espalier::kernels {

using tensor::GradWrite;

namespace {

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

at::Tensor bf16_scratch(int64_t elements) { return at::empty({elements}, at::TensorOptions().dtype(at::kBFloat16)); }

// Calls pack(first column, columns, first depth, depths, block) for each block of B, on all threads. The depth runs
// outside where the rows of the source run along the columns, so that memory is read as it is.
template <class Pack>
PackedB pack_blocks(int64_t columns, int64_t depth, bool depth_outside, Pack pack) {
  PackedB b{.values = {}, .depth = round_up(depth, kDepthUnit), .columns = columns};
  b.values = bf16_scratch(round_up(columns, kPanel) * b.depth);
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

// Products that are deep enough for slices: a thread's share of 512 x 512 sums stays in the second-level cache while
// the depth runs, and so does the slice of B for them.
constexpr int64_t kSliceDepth = 512, kSliceColumns = 512, kSliceRows = 512, kMinSliced = 4096;

// The whole panels from `begin` to `end`.
void multiply_slices(const Bf16Kernels& kernels, const at::Tensor& a, const PackedB& b, const uint16_t* bias,
                     uint16_t* y, int64_t begin, int64_t end) {
  const int64_t depth = b.depth, all_columns = b.columns;
  const at::Tensor sums = at::empty({kSliceRows * kSliceColumns}, at::TensorOptions().dtype(at::kFloat));
  const at::Tensor copies = bf16_scratch(2 * kPanel * kSliceDepth);
  const auto copy = [&](int64_t row) { return mutable_bf16_data(copies) + row / kPanel % 2 * kPanel * kSliceDepth; };
  const auto multiply_slice = [&](int64_t at, int64_t first_row, int64_t end_row, int64_t column) {
    const int64_t depths = std::min(kSliceDepth, depth - at), columns = std::min(kSliceColumns, all_columns - column);
    const auto source = [&](int64_t row) { return bf16_data(a) + row * depth + at; };
    for (int64_t unit = 0; unit < depths; unit += kDepthUnit)
      for (int64_t row = 0; row < kPanel; ++row)
        std::copy_n(source(first_row + row) + unit, kDepthUnit, copy(first_row) + unit * kPanel + row * kDepthUnit);
    for (int64_t row = first_row; row < end_row; row += kPanel) {
      const bool is_last = row + kPanel == end_row;
      const DepthSlice slice{.b_stride = depth * kPanel,
                             .sums = sums.mutable_data_ptr<float>() + (row - first_row) * kSliceColumns,
                             .begins = at == 0,
                             .ends = at + depths == depth,
                             .next_copy = copy(row + kPanel)};
      kernels.store_bf16({.a = copy(row),
                          .a_stride = kDepthUnit,
                          .a_step = kBlockElements,
                          .b = b.panel(column) + at * kPanel,
                          .depth = depths,
                          .rows = kPanel,
                          .columns = columns,
                          .next_a = is_last ? nullptr : source(row + kPanel),
                          .next_stride = depth,
                          .slice = &slice},
                         bias == nullptr ? nullptr : bias + column, y + row * all_columns + column, all_columns);
    }
  };
  for (int64_t column = 0; column < all_columns; column += kSliceColumns)
    for (int64_t row = begin * kPanel; row < end * kPanel; row += kSliceRows)
      for (int64_t at = 0; at < depth; at += kSliceDepth)
        multiply_slice(at, row, std::min(row + kSliceRows, end * kPanel), column);
}

// y [rows, b.columns] = round(a b + bias), `a` row-major.
void multiply_rows(const Bf16Kernels& kernels, const at::Tensor& a, const PackedB& b, const at::Tensor& bias,
                   const at::Tensor& y) {
  const int64_t columns = b.columns, block = cached_columns(b.depth);
  const uint16_t* bias_values = bias.defined() ? bf16_data(bias) : nullptr;
  uint16_t* out = mutable_bf16_data(y);
  at::parallel_for(0, num_panels(a.size(0)), 1, [&](int64_t begin, int64_t end) {
    if (kernels.has_tiles && b.depth >= kMinSliced && a.size(1) == b.depth) {
      const int64_t whole = std::min(end, a.size(0) / kPanel);
      multiply_slices(kernels, a, b, bias_values, out, begin, whole);
      begin = std::max(begin, whole);
    }
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
  static const int64_t bytes = std::clamp<int64_t>(sysconf(_SC_LEVEL2_CACHE_SIZE) / 8 * 5, 256 << 10, 960 << 10);
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
  if (rows_ % kPanel != 0 || stride_ != depth_) copy_ = bf16_scratch(kPanel * depth_);
}

PanelProduct RowPanels::product(int64_t row) const {
  PanelProduct product{.a = values_ + row * stride_,
                       .a_stride = depth_,
                       .a_step = kDepthUnit,
                       .b = nullptr,
                       .depth = depth_,
                       .rows = std::min(kPanel, rows_ - row),
                       .columns = 0};
  if (product.rows == kPanel && stride_ == depth_) {
    product.next_stride = depth_;
    if (row + 2 * kPanel <= rows_) product.next_a = product.a + kPanel * depth_;
    return product;
  }
  pack_a({product.a, stride_}, product.rows, stride_, mutable_bf16_data(copy_));
  product.a = bf16_data(copy_);
  return product;
}

void multiply_transposed(const Bf16Kernels& kernels, const TransposedProduct& product, int64_t begin, int64_t end) {
  const PackedB& b = product.b;
  const int64_t panel_elements = kPanel * b.depth;
  // Panels of A fill the cache; some of B pass by, each used by all of them.
  const int64_t most = cached_columns(b.depth) / kPanel, num_groups = (end - begin + most - 1) / most;
  const int64_t group = (end - begin + num_groups - 1) / num_groups,
                block = std::max<int64_t>(1, most / (kernels.has_tiles ? 2 : 8)) * kPanel;
  const auto multiply = product.write == GradWrite::kAdd ? kernels.add_packed : kernels.store_packed;
  const at::Tensor packed = bf16_scratch(group * panel_elements);
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
        const uint16_t* const values = a + (panel - first) * panel_elements;
        multiply({.a = values,
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

void blocked_weight_grad(const Bf16Kernels& kernels, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& grad,
                         GradWrite write) {
  const int64_t outputs = dy.size(1);
  if (dy.size(0) == 0 && write == GradWrite::kOverwrite) grad.zero_();
  for (int64_t first = 0; first < dy.size(0); first += kGradTokens) {
    const int64_t tokens = std::min(kGradTokens, dy.size(0) - first);
    const PackedB b = pack_rows(x.narrow(0, first, tokens));
    const TransposedProduct product{.a = bf16_data(dy) + first * outputs,
                                    .stride = outputs,
                                    .depth = tokens,
                                    .rows = outputs,
                                    .b = b,
                                    .c = grad.mutable_data_ptr<float>(),
                                    .write = first == 0 ? write : GradWrite::kAdd};
    at::parallel_for(0, num_panels(outputs), 1,
                     [&](int64_t begin, int64_t end) { multiply_transposed(kernels, product, begin, end); });
  }
}

}  // namespace espalier::kernels
