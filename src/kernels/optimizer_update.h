// One step of an optimizer (spec/optimizers/) in one pass over memory: scales the gradient, updates the fp32 master and
// the state, writes the rounded weight. And what a step measures of gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "spec/optimizer.h"

namespace espalier::kernels {

// fp32, same number of elements, contiguous. `value`: compute type, receives the master rounded to nearest even. When
// the compute type is fp32, value may be the master itself. Of optimizers that average the value is another point;
// those with a second pass leave a direction in `grad` and master and value as they are.
struct OptimizerTensors {
  at::Tensor master;
  std::vector<at::Tensor> states;  // in the order of OptimizerKind::states
  at::Tensor grad, value;
};

void optimizer_update(const spec::OptimizerKind& kind, const OptimizerTensors& tensors,
                      const spec::OptimizerConstants& constants);

// Sum of squares of a fp32 tensor, accumulated in double, the same bits for a given number of threads.
double sum_of_squares(const at::Tensor& values);
// Number of elements that are exactly zero.
int64_t count_zeros(const at::Tensor& values);
// True if every element is finite.
bool all_finite(const at::Tensor& values);

}  // namespace espalier::kernels
