// One step of an optimizer (spec/optimizers/) in one pass over memory: scales the gradient, updates the fp32 master and
// the state, writes the rounded weight. And what a step measures of gradients. Both take lists of tensors: a device
// does a list at once, and is waited for once.
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

struct OptimizerUpdate {
  OptimizerTensors tensors;
  spec::OptimizerConstants constants;
};
// All tensors on one device; none is written by one update and used by another.
void optimizer_update(const spec::OptimizerKind& kind, const std::vector<OptimizerUpdate>& updates);

// What is wanted of a fp32 tensor, contiguous. What is not wanted stays 0.
struct Measure {
  at::Tensor values;
  bool squares = false, zeros = false, not_finite = false;
};
struct Measured {
  double sum_of_squares = 0;  // accumulated in double, the same bits for any number of threads
  int64_t num_zeros = 0;      // exactly zero
  int64_t num_not_finite = 0;
};
// Of each tensor; all on one device.
std::vector<Measured> measure(const std::vector<Measure>& of);

}  // namespace espalier::kernels
