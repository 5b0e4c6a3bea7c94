// AdamW (Loshchilov and Hutter 2019), apex's FusedAdam in its default mode: decoupled decay, bias correction:
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   p -= lr ((m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay p)
// One pass over memory: scales the gradient, updates the fp32 master and both moments, writes the rounded weight.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace espalier::kernels {

struct AdamStep {
  double lr = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  int64_t step = 1;       // t: 1 for the first update
  double grad_scale = 1;  // multiplies the gradient before use (clipping, loss scale, token count)
};

// master, exp_avg, exp_avg_sq, grad: fp32, same number of elements, contiguous; value: compute type, receives master
// rounded to nearest even. When the compute type is fp32, value may be master itself.
void adam_step(const at::Tensor& master, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
               const at::Tensor& grad, const at::Tensor& value, const AdamStep& step);

// Sum of squares of a fp32 tensor, accumulated in double, the same bits for a given number of threads.
double sum_of_squares(const at::Tensor& values);
// Number of elements that are exactly zero.
int64_t count_zeros(const at::Tensor& values);
// True if every element is finite.
bool all_finite(const at::Tensor& values);

}  // namespace espalier::kernels
