// How long a step of a run takes on a machine: its stages follow their tables on a virtual clock (plan/simulate.h),
// each action as long as its work and its messages take, and what is left once the last backward pass has ended
// follows. Pure functions; nothing is measured here.
//
// Not modelled: launching kernels, loading data, evaluation, saves, logs, Muon's products, and any other tenant of the
// network.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/partition.h"
#include "plan/run_shape.h"
#include "plan/schedule.h"
#include "plan/time/machine.h"

namespace espalier::plan {

// Seconds of one stage in one step; they add up to the step.
struct StepParts {
  double matrices = 0, attention = 0, moving = 0;  // forward and backward
  double recompute = 0;                            // the same three of forward passes that run again
  double tensor = 0, context = 0;                  // messages that its computing waits for
  double pipeline = 0;                             // messages between stages that it waits for
  double bubble = 0;                               // waits for other stages
  double data = 0;                                 // gradients, and weights under ZeRO, beyond what is hidden
  double optimizer = 0;
  double total() const;
};

struct StepTime {
  double seconds = 0;
  int64_t busiest_stage = 0;
  StepParts parts;  // of the busiest stage
  // FLOP/s of a device, counted as BLOOM's log does and as the mathematics needs (plan/flops.h).
  double hardware_flops = 0, model_flops = 0;
  double tokens = 0;       // a second, of the whole run
  double utilization = 0;  // model_flops over the peak

  // "compute", "messages between tensor ranks", "pipeline bubble" or "messages between data-parallel ranks": the
  // largest; compute is products, attention, moving bytes, recompute and the optimizer.
  std::string limit() const;
  double limit_share() const;
};

// Of one stage's forward and backward of one micro-batch, both without messages; recompute is apart.
struct PassTime {
  StepParts forward, backward;
  double weight_seconds = 0;  // of backward: gradients of weights
};

class StepClock {
 public:
  // UserError where no partition works. The objects are copied.
  StepClock(const RunShape& run, const Machine& machine);

  // At another global batch size of the same micro-batches, such as those of a ramp; a multiple of what all replicas
  // take at once. By default that of the run.
  StepTime at(int64_t global_batch_size) const;
  StepTime at() const { return at(run_.global_batch_size); }

  // Of chunk 0's part of a stage, for tests and tables.
  const PassTime& pass(int64_t stage, int64_t chunk = 0) const {
    return passes_[static_cast<size_t>(chunk * partition_.num_stages + stage)];
  }

 private:
  // After the last backward pass, of a stage.
  struct Tail {
    double gradients = 0;  // may be hidden
    double rest = 0;
    double optimizer = 0;
  };
  PassTime pass_time(int64_t stage, int64_t chunk) const;
  Tail tail_of(const RunShape& run, int64_t stage) const;

  RunShape run_;
  Machine machine_;
  Partition partition_;
  std::vector<PassTime> passes_;  // of each part, in order of depth
  std::vector<Tail> tails_;       // of each stage, at the run's batch size
};

}  // namespace espalier::plan
