// Products in fp32 of operands of any compute type: c = a b + bias, and c += a b.
//
// a [m, k] and b [k, n] are row-major or the transpose of a row-major matrix (so at::mm(x, weight.t()) is
// wide_product(x, weight.t(), {}, c)); c [m, n] is fp32, its rows perhaps apart.
//
// Ours where they are faster than the library's (base/cpu_isa.h, multiplies_fp32): both operands are packed into
// panels, where short types become fp32, and what is read again stays in the caches. Their sums depend on nothing but
// k: blocks of 384 in order, each from zero, added one after another. So they have the same bits for any number of
// threads and any instruction set.
#pragma once

#include <ATen/core/Tensor.h>

#include "tensor/param.h"

namespace espalier::kernels {

// On Intel's processors the library is MKL, whose sums depend on where the operands lie in memory, so that a replay, or
// the same run with other allocations before it, has other last bits. This chooses its mode in which they do not
// (MKL_CBWR=AUTO,STRICT, unless the environment says otherwise; 1 % slower at most). Before the process's first
// product, and before other threads.
void make_library_products_repeatable();

// bias [n] of any compute type; undefined: none.
void wide_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias, const at::Tensor& c);
void add_wide_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c);
// The one or the other, for gradients.
void write_wide_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, tensor::GradWrite write);

// The same by panels on every processor, whether faster there or not.
void panel_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias, const at::Tensor& c);
void add_panel_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c);

}  // namespace espalier::kernels
