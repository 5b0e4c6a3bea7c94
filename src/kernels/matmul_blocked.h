// The three products of kernels/matmul.h for bf16 on machines with bf16 instructions: blocking, packing and threads
// around the inner parts of matmul_bf16.h; and the pieces of them that the cross entropy is built from.
//
// One operand is packed whole (the weights, or a block of activations), the other is read where it is. What a thread
// reads again and again fits its share of the second-level cache. The order of the sums does not depend on blocks or
// threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

#include "kernels/matmul_bf16.h"
#include "tensor/param.h"

namespace espalier::kernels {

// Tokens summed in registers before the weight gradient in memory is added to.
constexpr int64_t kGradTokens = 1024;

// The kernels of the instruction set in force; nullptr if it has no bf16 products.
const Bf16Kernels* bf16_kernels();

inline int64_t num_panels(int64_t size) { return (size + kPanel - 1) / kPanel; }
inline const uint16_t* bf16_data(const at::Tensor& x) { return static_cast<const uint16_t*>(x.const_data_ptr()); }
inline uint16_t* mutable_bf16_data(const at::Tensor& x) { return static_cast<uint16_t*>(x.mutable_data_ptr()); }

// B, packed: panels of kPanel columns, one after the other.
struct PackedB {
  at::Tensor values;
  int64_t depth = 0;    // padded
  int64_t columns = 0;  // not padded
  // The panel that begins with that column, a multiple of kPanel.
  const uint16_t* panel(int64_t column) const { return bf16_data(values) + column * depth; }
};
PackedB pack_columns(const at::Tensor& weight);  // B = weight^T, weight [columns, depth]
PackedB pack_rows(const at::Tensor& weight);     // B = weight, [depth, columns]

// What may stay in a core's second-level cache next to what streams through it: five eighths, at most 960 KiB.
int64_t cached_bytes();

// Columns of B, a multiple of kPanel, whose panels fill the share of the cache that is meant for what stays.
int64_t cached_columns(int64_t depth);

// Row panels of a row-major A [rows, depth]: in place where all of a panel is readable, else a padded copy. One thread.
class RowPanels {
 public:
  RowPanels(const at::Tensor& a, int64_t padded_depth);
  // The panel that begins at `row`; b and columns are the caller's to fill in. Valid until the next call.
  PanelProduct product(int64_t row) const;

 private:
  const uint16_t* values_;
  int64_t rows_, stride_, depth_;
  at::Tensor copy_;
};

// A^T B: a [depth, rows], rows of `stride` elements; b of the same depth; c [rows, b.columns] fp32 is added to, or
// overwritten.
struct TransposedProduct {
  const uint16_t* a;
  int64_t stride, depth, rows;
  const PackedB& b;
  float* c;
  tensor::GradWrite write;
};
// One thread's share: panels begin .. end - 1 of num_panels(rows).
void multiply_transposed(const Bf16Kernels& kernels, const TransposedProduct& product, int64_t begin, int64_t end);

// As the functions of kernels/matmul.h of these names.
at::Tensor blocked_forward(const Bf16Kernels& kernels, const at::Tensor& x, const at::Tensor& weight,
                           const at::Tensor& bias);
at::Tensor blocked_input_grad(const Bf16Kernels& kernels, const at::Tensor& dy, const at::Tensor& weight);
void blocked_weight_grad(const Bf16Kernels& kernels, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& grad,
                         tensor::GradWrite write);

}  // namespace espalier::kernels
