#include "kernels/softmax_rows.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>

#include "kernels/dispatch.h"

namespace espalier::kernels {
namespace {

float rounded(float logit, LogitRounding rounding) {
  if (rounding == LogitRounding::kBf16) return static_cast<float>(c10::BFloat16(logit));
  if (rounding == LogitRounding::kFp16) return static_cast<float>(c10::Half(logit));
  return logit;
}

void accumulate(const LogitBlock& block, RowSums* sums) {
  float largest = sums->largest;
  for (int64_t i = 0; i < block.count; ++i) {
    block.logits[i] = rounded(block.logits[i], block.rounding);
    largest = std::max(largest, block.logits[i]);
  }
  double sum = 0;
  for (int64_t i = 0; i < block.count; ++i) sum += std::exp(block.logits[i] - largest);
  const double before = sums->sum == 0 ? 0 : sums->sum * std::exp(static_cast<double>(sums->largest) - largest);
  sums->sum = before + sum;
  sums->largest = largest;
  if (block.label >= 0 && block.label < block.count) sums->label_logit = block.logits[block.label];
}

float gradient_of(const LogitBlock& block, const RowGradient& row, int64_t i) {
  const float probability = std::exp(rounded(block.logits[i], block.rounding) - row.log_sum_exp);
  return (i == block.label ? probability - 1 : probability) * row.scale;
}

void gradient(const LogitBlock& block, const RowGradient& row) {
  for (int64_t i = 0; i < block.count; ++i) block.logits[i] = row.scale == 0 ? 0 : gradient_of(block, row, i);
}

void gradient_bf16(const LogitBlock& block, const RowGradient& row, uint16_t* out) {
  for (int64_t i = 0; i < block.count; ++i) {
    out[i] = row.scale == 0 ? 0 : c10::BFloat16(gradient_of(block, row, i)).x;
  }
}

}  // namespace

const SoftmaxRowKernels kPlainSoftmaxRows = {accumulate, gradient, gradient_bf16};

const SoftmaxRowKernels& softmax_row_kernels() {
  return cpu_isa() >= CpuIsa::kAvx512 ? kAvx512SoftmaxRows : kPlainSoftmaxRows;
}

}  // namespace espalier::kernels
