#include "kernels/wide_product.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "kernels/internal/row_dispatch.h"
#include "kernels/matmul_blocked.h"

namespace espalier::kernels {
namespace {

// What is summed in registers between two visits of C. A panel of B of this depth, 48 KiB, is used by all panels of A
// that the second-level cache holds.
constexpr int64_t kDepthBlock = 384;
constexpr int64_t kPanelElements = kWidePanel * kDepthBlock;
// B packed at once, if its columns leave room for more than one block of the depth.
constexpr int64_t kPackedElements = 4 << 20;
// Rows of B that are copied into all panels before the next.
constexpr int64_t kRowsAtOnce = 8;
// With fewer rows of A packing B costs more than it saves: the library reads it once. (With AVX-512 ours win from 8 on,
// with AVX2 from 22.)
constexpr int64_t kMinRows = 16;
// A thread is not woken for less than that: about 15 us.
constexpr int64_t kMinPacked = 1 << 16, kMinMultiplied = 1 << 21;
// The library's operands are converted to fp32 that much at a time.
constexpr int64_t kLibraryDepth = 1024;

int64_t at_least_one(int64_t value) { return std::max<int64_t>(1, value); }
int64_t num_wide_panels(int64_t size) { return (size + kWidePanel - 1) / kWidePanel; }
at::Tensor float_scratch(int64_t elements) { return at::empty({elements}, at::TensorOptions().dtype(at::kFloat)); }

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// An operand as a source of panels; panel_dim: the dimension that its panels divide, 0 of A and 1 of B.
class Operand {
 public:
  Operand(const at::Tensor& x, int panel_dim)
      : values_(static_cast<const char*>(x.const_data_ptr())),
        bytes_(static_cast<int64_t>(x.element_size())),
        size_(x.size(panel_dim)),
        panel_stride_(x.stride(panel_dim)),
        depth_stride_(x.stride(1 - panel_dim)),
        along_(panel_stride_ == 1) {
    ESPALIER_CHECK(panel_stride_ == 1 || depth_stride_ == 1, "sizes ", x.sizes(), ", strides ", x.strides());
    const TypedRowKernels& kernels = row_kernels(x.scalar_type());
    pack_ = along_ ? kernels.pack_along : kernels.pack_across;
  }
  int64_t panels() const { return num_wide_panels(size_); }
  int64_t width(int64_t panel) const { return std::min(kWidePanel, size_ - panel * kWidePanel); }

  // Those panels of that part of the depth, one after another.
  void pack(Range panels, Range depth, float* to) const {
    const int64_t step = along_ ? kRowsAtOnce : depth.size();
    for (int64_t at = depth.begin; at < depth.end; at += step) {
      const int64_t count = std::min(step, depth.end - at);
      for (int64_t panel = panels.begin; panel < panels.end; ++panel)
        pack_({values_ + (panel * kWidePanel * panel_stride_ + at * depth_stride_) * bytes_,
               along_ ? depth_stride_ : panel_stride_, width(panel), count},
              to + ((panel - panels.begin) * depth.size() + at - depth.begin) * kWidePanel);
    }
  }

 private:
  const char* values_;
  int64_t bytes_, size_, panel_stride_, depth_stride_;
  bool along_;
  void (*pack_)(const PanelSource&, float* panel);
};

// All panels of B for a part of the depth: blocks of kDepthBlock, each with its panels one after another.
class PackedBlocks {
 public:
  PackedBlocks(const Operand& b, Range depth, float* values)
      : depth_(depth), columns_(b.panels() * kWidePanel), values_(values) {
    const int64_t grain = at_least_one(kMinPacked / at_least_one(kWidePanel * depth.size()));
    at::parallel_for(0, b.panels(), grain, [&](int64_t begin, int64_t end) {
      for (int64_t number = 0; number < size(); ++number)
        b.pack({begin, end}, block(number), values_ + place(number, begin));
    });
  }
  int64_t size() const { return at_least_one((depth_.size() + kDepthBlock - 1) / kDepthBlock); }
  Range block(int64_t number) const {
    const int64_t begin = depth_.begin + number * kDepthBlock;
    return {begin, std::min(begin + kDepthBlock, depth_.end)};
  }
  const float* panel(int64_t number, int64_t panel) const { return values_ + place(number, panel); }

 private:
  int64_t place(int64_t number, int64_t panel) const {
    return number * kDepthBlock * columns_ + panel * kWidePanel * block(number).size();
  }

  Range depth_;
  int64_t columns_;
  float* values_;
};

// c [a's rows, b's columns] = start + a b.
struct Product {
  const Operand& a;
  const Operand& b;
  const float* start;  // nullptr: zeros
  int64_t start_stride;
  float* c;
  int64_t stride;
};

// One thread's share: panels of A and of B.
void multiply_share(const Product& product, const PackedBlocks& packed, Range rows, Range columns) {
  const auto multiply = row_kernels().multiply_panels;
  const int64_t group = at_least_one(cached_bytes() / (kPanelElements * 4));  // panels of A in the cache
  const at::Tensor storage = float_scratch(std::min(group, rows.size()) * kWidePanel * packed.block(0).size());
  float* const panels = storage.mutable_data_ptr<float>();
  for (int64_t number = 0; number < packed.size(); ++number) {
    const Range depth = packed.block(number);
    const bool begins = depth.begin == 0;
    const float* const addend = begins ? product.start : product.c;
    const int64_t addend_stride = begins ? product.start_stride : product.stride;
    for (int64_t first = rows.begin; first < rows.end; first += group) {
      const Range now{first, std::min(first + group, rows.end)};
      product.a.pack(now, depth, panels);
      for (int64_t column = columns.begin; column < columns.end; ++column) {
        for (int64_t row = now.begin; row < now.end; ++row) {
          const int64_t from_row = row * kWidePanel, from_column = column * kWidePanel;
          multiply({.a = panels + (row - first) * kWidePanel * depth.size(),
                    .b = packed.panel(number, column),
                    .depth = depth.size(),
                    .rows = product.a.width(row),
                    .columns = product.b.width(column),
                    .addend = addend == nullptr ? nullptr : addend + from_row * addend_stride + from_column,
                    .addend_stride = addend_stride,
                    .c = product.c + from_row * product.stride + from_column,
                    .c_stride = product.stride});
        }
      }
    }
  }
}

void multiply(const Product& product, int64_t depth) {
  const int64_t rows = product.a.panels(), columns = product.b.panels(), threads = at::get_num_threads();
  const int64_t blocks = at_least_one(kPackedElements / at_least_one(columns * kPanelElements));
  const int64_t pass = blocks * kDepthBlock;
  const at::Tensor storage = float_scratch(columns * kWidePanel * std::min(pass, depth));
  // Each thread packs its rows of A; where there are too few for all threads, all of them.
  const bool by_rows = rows >= 2 * threads || rows >= columns;
  const int64_t of_a_panel = kWidePanel * kWidePanel * (by_rows ? columns : rows) * std::min(pass, depth);
  const int64_t grain = at_least_one(kMinMultiplied / at_least_one(of_a_panel));
  for (int64_t first = 0; first == 0 || first < depth; first += pass) {
    const PackedBlocks packed(product.b, {first, std::min(first + pass, depth)}, storage.mutable_data_ptr<float>());
    at::parallel_for(0, by_rows ? rows : columns, grain, [&](int64_t begin, int64_t end) {
      const Range share{begin, end};
      multiply_share(product, packed, by_rows ? share : Range{0, rows}, by_rows ? Range{0, columns} : share);
    });
  }
}

void check(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  ESPALIER_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0), a.sizes(), " times ", b.sizes());
  ESPALIER_CHECK(c.scalar_type() == at::kFloat && c.dim() == 2 && c.size(0) == a.size(0) && c.size(1) == b.size(1) &&
                     (c.stride(1) == 1 || c.size(1) <= 1),
                 a.sizes(), " times ", b.sizes(), " into ", c.sizes(), " of ", c.scalar_type());
}

at::Tensor widened(const at::Tensor& x) { return x.to(at::kFloat); }

bool takes_panels(const at::Tensor& a) { return multiplies_fp32(cpu_isa()) && a.size(0) >= kMinRows; }

}  // namespace

void make_library_products_repeatable() {
  const CpuIsa isa = best_cpu_isa();
  if (isa >= CpuIsa::kAvx2 && !multiplies_fp32(isa)) ::setenv("MKL_CBWR", "AUTO,STRICT", /*replace=*/0);
}

void panel_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias, const at::Tensor& c) {
  check(a, b, c);
  ESPALIER_CHECK(!bias.defined() || (bias.dim() == 1 && bias.is_contiguous() && bias.size(0) == b.size(1)),
                 "a bias of ", bias.sizes(), " for ", b.size(1), " columns");
  const at::Tensor wide_bias = bias.defined() ? widened(bias) : bias;
  multiply({.a = Operand(a, 0),
            .b = Operand(b, 1),
            .start = bias.defined() ? wide_bias.const_data_ptr<float>() : nullptr,
            .start_stride = 0,
            .c = c.mutable_data_ptr<float>(),
            .stride = c.stride(0)},
           a.size(1));
}

void add_panel_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  check(a, b, c);
  float* const values = c.mutable_data_ptr<float>();
  multiply({.a = Operand(a, 0),
            .b = Operand(b, 1),
            .start = values,
            .start_stride = c.stride(0),
            .c = values,
            .stride = c.stride(0)},
           a.size(1));
}

void wide_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias, const at::Tensor& c) {
  if (takes_panels(a)) return panel_product(a, b, bias, c);
  at::Tensor result = c;
  if (bias.defined())
    at::addmm_out(result, widened(bias), widened(a), widened(b));
  else
    at::mm_out(result, widened(a), widened(b));
}

void add_wide_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  write_wide_product(a, b, c, tensor::GradWrite::kAdd);
}

void write_wide_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, tensor::GradWrite write) {
  const bool adds = write == tensor::GradWrite::kAdd;
  if (takes_panels(a)) return adds ? add_panel_product(a, b, c) : panel_product(a, b, {}, c);
  at::Tensor result = c;
  if (!adds && a.size(1) == 0) result.zero_();
  for (int64_t first = 0; first < a.size(1); first += kLibraryDepth) {
    const int64_t depth = std::min(kLibraryDepth, a.size(1) - first);
    const at::Tensor left = widened(a.narrow(1, first, depth)), right = widened(b.narrow(0, first, depth));
    if (adds || first > 0)
      result.addmm_(left, right);
    else
      at::mm_out(result, left, right);
  }
}

}  // namespace espalier::kernels
