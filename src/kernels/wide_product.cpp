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

// What is summed in registers between two visits of C. A panel of B of this depth, 24 KiB with vectors of 256 bits, is
// used by all panels of A that the second-level cache holds.
constexpr int64_t kDepthBlock = 384;
// B packed at once, if its columns leave room for more than one block of the depth.
constexpr int64_t kPackedElements = 4 << 20;
// Rows of an operand of which some panels get their parts before others do.
constexpr int64_t kRowsAtOnce = 8;
// With fewer rows of A packing B costs more than it saves: the library reads it once. (With AVX-512 ours win from 8 on;
// with AVX2 both are even at 16.)
constexpr int64_t kMinRows = 16;
// Rows of A with which a panel of B is worth fetching for a thread by itself.
constexpr int64_t kRowsOfThread = 64;
// A thread is not woken for less than that: about 15 us.
constexpr int64_t kMinPacked = 1 << 16, kMinMultiplied = 1 << 21;
// The library's operands are converted to fp32 that much at a time.
constexpr int64_t kLibraryDepth = 1024;

int64_t at_least_one(int64_t value) { return std::max<int64_t>(1, value); }
at::Tensor float_scratch(int64_t elements) { return at::empty({elements}, at::TensorOptions().dtype(at::kFloat)); }

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// An operand as a source of panels, which divide the rows of A or the columns of B.
class Operand {
 public:
  static Operand rows_of(const at::Tensor& a) {
    return {a, 0, row_kernels().panel_rows, row_kernels(a.scalar_type()).pack_rows};
  }
  static Operand columns_of(const at::Tensor& b) {
    return {b, 1, row_kernels().panel_columns, row_kernels(b.scalar_type()).pack_columns};
  }
  int64_t size() const { return size_; }    // in rows or columns
  int64_t width() const { return width_; }  // of a panel
  int64_t panels() const { return (size_ + width_ - 1) / width_; }
  int64_t size(Range panels) const { return std::min(panels.end * width_, size_) - panels.begin * width_; }

  // Those panels of that part of the depth, one after another.
  void pack(Range panels, Range depth, float* to) const {
    const int64_t step = along_ ? kRowsAtOnce : depth.size();
    for (int64_t at = depth.begin; at < depth.end; at += step)
      pack_({values_ + (panels.begin * width_ * panel_stride_ + at * depth_stride_) * bytes_,
             along_ ? depth_stride_ : panel_stride_, size(panels), std::min(step, depth.end - at)},
            depth.size() * width_, to + (at - depth.begin) * width_);
  }

 private:
  Operand(const at::Tensor& x, int panel_dim, int64_t width, const PackPanels& pack)
      : values_(static_cast<const char*>(x.const_data_ptr())),
        bytes_(static_cast<int64_t>(x.element_size())),
        size_(x.size(panel_dim)),
        width_(width),
        panel_stride_(x.stride(panel_dim)),
        depth_stride_(x.stride(1 - panel_dim)),
        along_(panel_stride_ == 1),
        pack_(along_ ? pack.along : pack.across) {
    ESPALIER_CHECK(panel_stride_ == 1 || depth_stride_ == 1, "sizes ", x.sizes(), ", strides ", x.strides());
  }

  const char* values_;
  int64_t bytes_, size_, width_, panel_stride_, depth_stride_;
  bool along_;
  PackPanels::Pack pack_;
};

// All panels of B for a part of the depth: blocks of kDepthBlock, each with its panels one after another.
class PackedBlocks {
 public:
  PackedBlocks(const Operand& b, Range depth, float* values)
      : depth_(depth), panels_(b.panels()), width_(b.width()), values_(values) {
    const int64_t grain = at_least_one(kMinPacked / at_least_one(width_ * depth.size()));
    at::parallel_for(0, panels_, grain, [&](int64_t begin, int64_t end) {
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
    return (number * kDepthBlock * panels_ + panel * block(number).size()) * width_;
  }

  Range depth_;
  int64_t panels_, width_;
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
  const Operand &a = product.a, &b = product.b;
  const int64_t group = at_least_one(cached_bytes() / (a.width() * kDepthBlock * 4));  // panels of A in the cache
  const at::Tensor storage =
      float_scratch(std::min(group, rows.size()) * a.width() * packed.block(0).size() + kPackSlack);
  float* const panels = storage.mutable_data_ptr<float>();
  for (int64_t number = 0; number < packed.size(); ++number) {
    const Range depth = packed.block(number);
    const bool begins = depth.begin == 0;
    const float* const addend = begins ? product.start : product.c;
    const int64_t addend_stride = begins ? product.start_stride : product.stride;
    for (int64_t first = rows.begin; first < rows.end; first += group) {
      const Range now{first, std::min(first + group, rows.end)};
      a.pack(now, depth, panels);
      for (int64_t column = columns.begin; column < columns.end; ++column) {
        const int64_t from_row = first * a.width(), from_column = column * b.width();
        multiply({.a = panels,
                  .b = packed.panel(number, column),
                  .next_b = column + 1 < columns.end ? packed.panel(number, column + 1) : nullptr,
                  .depth = depth.size(),
                  .rows = a.size(now),
                  .columns = b.size(Range{column, column + 1}),
                  .addend = addend == nullptr ? nullptr : addend + from_row * addend_stride + from_column,
                  .addend_stride = addend_stride,
                  .c = product.c + from_row * product.stride + from_column,
                  .c_stride = product.stride});
      }
    }
  }
}

void multiply(const Product& product, int64_t depth) {
  const Operand &a = product.a, &b = product.b;
  const int64_t padded_columns = b.panels() * b.width(), threads = at::get_num_threads();
  const int64_t blocks = at_least_one(kPackedElements / at_least_one(b.size() * kDepthBlock));
  const int64_t pass = blocks * kDepthBlock;
  const at::Tensor storage = float_scratch(padded_columns * std::min(pass, depth));
  // Each thread packs its rows of A; where there are too few for all threads, all of them.
  const bool by_rows = a.size() >= kRowsOfThread * threads || a.size() >= b.size();
  const Operand &shared = by_rows ? a : b, &whole = by_rows ? b : a;
  const int64_t work_of_panel = shared.width() * whole.panels() * whole.width() * std::min(pass, depth);
  const int64_t grain = at_least_one(kMinMultiplied / at_least_one(work_of_panel));
  for (int64_t first = 0; first == 0 || first < depth; first += pass) {
    const PackedBlocks packed(b, {first, std::min(first + pass, depth)}, storage.mutable_data_ptr<float>());
    at::parallel_for(0, shared.panels(), grain, [&](int64_t begin, int64_t end) {
      const Range share{begin, end};
      multiply_share(product, packed, by_rows ? share : Range{0, a.panels()}, by_rows ? Range{0, b.panels()} : share);
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
  multiply({.a = Operand::rows_of(a),
            .b = Operand::columns_of(b),
            .start = bias.defined() ? wide_bias.const_data_ptr<float>() : nullptr,
            .start_stride = 0,
            .c = c.mutable_data_ptr<float>(),
            .stride = c.stride(0)},
           a.size(1));
}

void add_panel_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  check(a, b, c);
  float* const values = c.mutable_data_ptr<float>();
  multiply({.a = Operand::rows_of(a),
            .b = Operand::columns_of(b),
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
