#include "kernels/adam.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "kernels/internal/row_dispatch.h"

namespace espalier::kernels {
namespace {

constexpr int64_t kGrain = 1 << 14;
constexpr int64_t kBlock = 1 << 14;  // elements of one partial result: fixed, so that threads change no bit

void check_fp32(const at::Tensor& values) {
  ESPALIER_CHECK(values.scalar_type() == at::kFloat && values.is_contiguous(), "fp32, contiguous; is ",
                 values.scalar_type(), " ", values.sizes(), " strides ", values.strides());
}

// The results of `measure` over blocks of the tensor, in order.
template <class Result>
Result total(const at::Tensor& values, Result (*measure)(const float*, int64_t)) {
  check_fp32(values);
  const int64_t count = values.numel(), num_blocks = (count + kBlock - 1) / kBlock;
  const float* data = values.const_data_ptr<float>();
  std::vector<Result> parts(static_cast<size_t>(num_blocks));
  at::parallel_for(0, num_blocks, 4, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      parts[block] = measure(data + block * kBlock, std::min(kBlock, count - block * kBlock));
    }
  });
  Result sum = 0;
  for (const Result part : parts) sum += part;
  return sum;
}

}  // namespace

void adam_step(const at::Tensor& master, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
               const at::Tensor& grad, const at::Tensor& value, const AdamStep& step) {
  for (const at::Tensor* tensor : {&master, &exp_avg, &exp_avg_sq, &grad}) {
    check_fp32(*tensor);
    ESPALIER_CHECK(tensor->numel() == master.numel(), tensor->numel(), " elements for ", master.numel());
  }
  ESPALIER_CHECK(value.is_contiguous() && value.numel() == master.numel(), value.numel(), " values for ",
                 master.numel());
  ESPALIER_CHECK(step.step >= 1, "step ", step.step);
  const double t = static_cast<double>(step.step);
  const AdamElements args{.master = master.data_ptr<float>(),
                          .exp_avg = exp_avg.data_ptr<float>(),
                          .exp_avg_sq = exp_avg_sq.data_ptr<float>(),
                          .grad = grad.const_data_ptr<float>(),
                          .value = value.const_data_ptr() == master.const_data_ptr() ? nullptr : value.data_ptr(),
                          .lr = static_cast<float>(step.lr),
                          .beta1 = static_cast<float>(step.beta1),
                          .beta2 = static_cast<float>(step.beta2),
                          .one_minus_beta1 = static_cast<float>(1 - step.beta1),
                          .one_minus_beta2 = static_cast<float>(1 - step.beta2),
                          .correction1 = static_cast<float>(1 / (1 - std::pow(step.beta1, t))),
                          .correction2 = static_cast<float>(1 / (1 - std::pow(step.beta2, t))),
                          .epsilon = static_cast<float>(step.epsilon),
                          .weight_decay = static_cast<float>(step.weight_decay),
                          .grad_scale = static_cast<float>(step.grad_scale)};
  const auto kernel = row_kernels(value.scalar_type()).adam;
  at::parallel_for(0, master.numel(), kGrain, [&](int64_t first, int64_t last) { kernel(args, first, last); });
}

double sum_of_squares(const at::Tensor& values) { return total(values, row_kernels().sum_of_squares); }
int64_t count_zeros(const at::Tensor& values) { return total(values, row_kernels().count_zeros); }
bool all_finite(const at::Tensor& values) { return total(values, row_kernels().count_not_finite) == 0; }

}  // namespace espalier::kernels
