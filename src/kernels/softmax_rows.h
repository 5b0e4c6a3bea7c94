// The row-wise parts of a cross entropy over a block of logits. Plain header: no torch.
//
// Logits come in fp32, as a product left them, and are first rounded to the compute type. Exponentials in fp32
// (relative error below 2^-22), sums in double between blocks.
#pragma once

#include <cstdint>

namespace espalier::kernels {

enum class LogitRounding { kNone, kBf16, kFp16 };

// Softmax of one row, block after block: sum of exp(logit - largest).
struct RowSums {
  float largest = -__builtin_inff();
  double sum = 0;
  float label_logit = 0;
};

struct LogitBlock {
  float* logits;  // one row of the block
  int64_t count;
  int64_t label;  // index within the block; outside 0..count-1 if the row's label is in another block
  LogitRounding rounding;
};

struct RowGradient {
  float log_sum_exp;
  float scale;  // upstream gradient of the row's loss
};

struct SoftmaxRowKernels {
  void (*accumulate)(const LogitBlock& block, RowSums* sums);
  // (exp(logit - log_sum_exp) - [label]) * scale, in place.
  void (*gradient)(const LogitBlock& block, const RowGradient& row);
  // The same into `out`, rounded to bf16.
  void (*gradient_bf16)(const LogitBlock& block, const RowGradient& row, uint16_t* out);
};

extern const SoftmaxRowKernels kPlainSoftmaxRows;   // softmax_rows.cpp
extern const SoftmaxRowKernels kAvx512SoftmaxRows;  // softmax_rows_avx512.cpp

// Those of the instruction set in force.
const SoftmaxRowKernels& softmax_row_kernels();

}  // namespace espalier::kernels
