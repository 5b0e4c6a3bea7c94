#include "kernels/newton_schulz.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "base/work_profile.h"
#include "kernels/device_ops.h"
#include "kernels/matmul_blocked.h"
#include "kernels/wide_product.h"

namespace espalier::kernels {
namespace {

// Calls finish(product, first row, first column) for the parts of a b, `a` row-major, that are on or below the
// diagonal. A thread has panels of rows from both ends: the first has one tile, the last as many as there are panels.
template <class Finish>
void multiply_lower(const at::Tensor& a, const PackedB& b, Finish finish) {
  const int64_t panels = num_panels(a.size(0)), block = cached_columns(b.depth);
  at::parallel_for(0, (panels + 1) / 2, 1, [&](int64_t begin, int64_t end) {
    const RowPanels rows(a, b.depth);
    const auto multiply = [&](int64_t panel, int64_t column) {
      const int64_t row = panel * kPanel, columns = std::min(b.columns, row + kPanel) - column;
      if (columns <= 0) return;
      PanelProduct product = rows.product(row);
      product.b = b.panel(column), product.columns = std::min(block, columns);
      finish(product, row, column);
    };
    for (int64_t column = 0; column < b.columns; column += block) {
      for (int64_t panel = begin; panel < end; ++panel) multiply(panel, column);
      for (int64_t panel = panels - end; panel < panels - begin; ++panel)
        if (panel >= (panels + 1) / 2) multiply(panel, column);
    }
  });
}

// What is above the diagonal, from what is below it.
void mirror(uint16_t* square, int64_t m) {
  at::parallel_for(0, num_panels(m), 1, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin * kPanel; first < std::min(end * kPanel, m); first += kPanel) {
      const int64_t last = std::min(first + kPanel, m);
      for (int64_t column = first; column < m; ++column)
        for (int64_t row = first; row < std::min(last, column); ++row)
          square[row * m + column] = square[column * m + row];
    }
  });
}

at::Tensor blocked(const Bf16Kernels& kernels, const at::Tensor& x, const NewtonSchulzStep& by) {
  const int64_t m = x.size(0), n = x.size(1);
  const at::Tensor gram = at::empty({m, m}, x.options()), polynomial = at::empty({m, m}, x.options()),
                   y = at::empty({m, n}, x.options());
  uint16_t *const g = mutable_bf16_data(gram), *const p = mutable_bf16_data(polynomial),
                  *const out = mutable_bf16_data(y);
  multiply_lower(x, pack_columns(x), [&](const PanelProduct& product, int64_t row, int64_t column) {
    kernels.store_bf16(product, nullptr, g + row * m + column, m);
  });
  mirror(g, m);
  const auto c = static_cast<float>(by.c), b = static_cast<float>(by.b), a = static_cast<float>(by.a);
  multiply_lower(gram, pack_rows(gram), [&](const PanelProduct& product, int64_t row, int64_t column) {
    const int64_t at = row * m + column;
    kernels.store_sum_bf16(product, {c, b, g + at, m}, p + at, m);
  });
  mirror(p, m);
  const PackedB packed = pack_rows(x);
  const uint16_t* values = bf16_data(x);
  const int64_t block = cached_columns(packed.depth);
  at::parallel_for(0, num_panels(m), 1, [&](int64_t begin, int64_t end) {
    const RowPanels rows(polynomial, packed.depth);
    for (int64_t column = 0; column < n; column += block) {
      for (int64_t row = begin * kPanel; row < end * kPanel; row += kPanel) {
        PanelProduct product = rows.product(row);
        product.b = packed.panel(column), product.columns = std::min(block, n - column);
        const int64_t at = row * n + column;
        kernels.store_sum_bf16(product, {1, a, values + at, n}, out + at, n);
      }
    }
  });
  return y;
}

at::Tensor by_library(const at::Tensor& x, const NewtonSchulzStep& by) {
  const at::Tensor gram = at::mm(x, x.t());
  return at::addmm(x, at::addmm(gram, gram, gram, by.b, by.c), x, by.a);
}

// fp32, and bf16 where the machine has no products of it: rounded where those would round.
at::Tensor by_wide_products(const at::Tensor& x, const NewtonSchulzStep& by) {
  const auto product = [](const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor c = at::empty({a.size(0), b.size(1)}, a.options().dtype(at::kFloat));
    wide_product(a, b, {}, c);
    return c;
  };
  const at::ScalarType type = x.scalar_type();
  const at::Tensor gram = product(x, x.t()).to(type);
  const at::Tensor polynomial = product(gram, gram).mul_(by.c).add_(gram, by.b).to(type);
  const at::Tensor y = x.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true).mul_(by.a);
  add_wide_product(polynomial, x, y);
  return y.to(type);
}

}  // namespace

at::Tensor newton_schulz(const at::Tensor& x, const NewtonSchulzStep& by) {
  ESPALIER_CHECK(x.dim() == 2 && x.is_contiguous(), "sizes ", x.sizes(), ", strides ", x.strides());
  ESPALIER_CHECK(x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16, x.scalar_type());
  const WorkSpan span(Work::kOptimizer, "Newton-Schulz");
  if (device_ops(x) != nullptr) return by_library(x, by);
  const Bf16Kernels* kernels = x.scalar_type() == at::kBFloat16 ? bf16_kernels() : nullptr;
  return kernels != nullptr ? blocked(*kernels, x, by) : by_wide_products(x, by);
}

}  // namespace espalier::kernels
