// How many bytes each rank of a run holds, and of what. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/activation_memory.h"
#include "plan/run_shape.h"
#include "plan/simulate.h"
#include "spec/optimizer.h"
#include "spec/shard.h"

namespace espalier::plan {

// What is held for each parameter, in bytes. Under ZeRO the parts that data-parallel ranks divide are those of one
// rank.
struct ParameterBytes {
  double weights = 0, gradients = 0, optimizer = 0;
  double total() const { return weights + gradients + optimizer; }
};

// Ours: weights in the compute type, gradients in fp32, the optimizer's state (AdamW: two moments in fp32) and, unless
// the weights are fp32 themselves, its master copy. Stage 2 and 3 as they are meant: plan_memory counts what stays
// whole all the same. `shares`: for some of the parameters an optimizer keeps less than for others.
ParameterBytes parameter_bytes(Precision precision, int64_t zero_stage, int64_t num_sharers,
                               const spec::OptimizerKind& optimizer = spec::adamw(),
                               const spec::ElementShares& shares = {});

// Of what one tensor rank holds of `specs`.
spec::ElementShares element_shares(const std::vector<spec::ParamSpec>& specs, const spec::TensorShard& shard = {});

ParameterBytes parameter_bytes(const RunShape& run);  // of its model, layout and optimizer

// As Megatron's table of its distributed optimizer counts, with AdamW: the same, except that fp16 has fp16 gradients
// and their fp32 copy with the optimizer (20 bytes, or 4 + 16 / d).
ParameterBytes megatron_parameter_bytes(Precision precision, bool distributed_optimizer, int64_t num_sharers);

// One rank of a pipeline stage, the first along the tensor axis (no other holds more).
struct StageMemory {
  int64_t num_parameters = 0;  // that the rank holds, a tied copy included
  double weights = 0, gradients = 0, optimizer = 0;
  // When the rank holds most:
  double activations = 0;  // kept for backward passes
  // Needed for a moment, and messages to and from other stages; bf16 gradients as they travel, where those are more
  // than all else.
  double workspace = 0;
  // Under --canonical-reduction the gradients include the sums that wait for others of the tree (plan/sum_tree.h).
  // Whole gradients (ZeRO 2) and whole layers (ZeRO 3) that exist only while they are needed: of two sections of
  // the flat buffers, one in use and one on its way. No layers where most is held while none runs, as at the output.
  double gathered = 0;
  double batches = 0;  // tokens, labels, masks and positions of all micro-batches of a step
  double peak() const { return weights + gradients + optimizer + activations + workspace + gathered + batches; }

  double kept_by_micro_batch = 0;  // of all chunks
  int64_t most_alive = 0;          // (micro-batch, chunk) pairs that are between forward and backward at once
};

struct MemoryPlan {
  std::vector<StageMemory> stages;
  const StageMemory& largest() const;
};

// Of a run with a known vocabulary.
MemoryPlan plan_memory(const RunShape& run, const Partition& partition, ProductKind products);

// A checkpoint: weights in the compute type, fp32 master weights and the optimizer's state; each parameter once.
double checkpoint_bytes(const RunShape& run);
double checkpoint_weight_bytes(const RunShape& run);  // without the optimizer's
// The same as Megatron-DeepSpeed writes it: both pipeline stages that hold a tied embedding write their copy.
double deepspeed_checkpoint_bytes(const RunShape& run);

}  // namespace espalier::plan
