// One step of an optimizer (spec/optimizers/) in one pass over memory: scales the gradient, updates the fp32 master and
// the state, writes the rounded weight. And what a step measures of gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "spec/optimizer.h"
#include "spec/shard.h"
#include "tensor/rng.h"

namespace espalier::kernels {

// What the rounding of states depends on that are stored in fewer bits than fp32 (spec/stored_state.h).
struct StateRounding {
  tensor::PhiloxKey key;
  int64_t step = 0;
  // Where the elements lie in the whole parameter: rows of three int64, first of the run here, first there, count.
  // Runs follow one another and hold all elements. On the device of the tensors.
  at::Tensor runs;
};
at::Tensor runs_tensor(const std::vector<spec::Extent>& extents, at::Device device);

// fp32, same number of elements, contiguous; states may be bf16, or uint8 where they are 8-bit blocks. `value`: compute
// type, receives the master rounded to nearest even. When the compute type is fp32, value may be the master itself. Of
// optimizers that average the value is another point; those with a second pass leave a direction in `grad` and master
// and value as they are.
struct OptimizerTensors {
  at::Tensor master;
  std::vector<at::Tensor> states;  // in the order of OptimizerKind::states
  at::Tensor grad, value;
  const StateRounding* rounding = nullptr;  // where a state is not fp32
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
