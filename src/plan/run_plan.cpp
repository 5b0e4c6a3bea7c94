#include "plan/run_plan.h"

#include <algorithm>

#include "plan/batch_ramp.h"
#include "plan/flops.h"

namespace espalier::plan {
namespace {

// Times of each part in forward passes of one layer.
std::vector<ActionTimes> part_times(const RunConfig& config, const Partition& partition) {
  const int64_t length = config.data.sequence_length;
  const double output = output_forward_flops(config.model, length) / layer_forward_flops(config.model, length);
  std::vector<ActionTimes> times;
  for (int64_t chunk = 0; chunk < partition.num_chunks; ++chunk)
    for (int64_t stage = 0; stage < partition.num_stages; ++stage) {
      const int64_t layers = partition.layers(stage, chunk).count();
      const double forward =
          static_cast<double>(layers) + (partition.part(stage, chunk).contains(partition.num_layers + 1) ? output : 0);
      const double again = static_cast<double>(num_recomputed_layers(config.training.recompute, layers));
      times.push_back(
          {.forward = forward, .backward_input = forward + again, .backward_weight = forward, .message = 0});
    }
  return times;
}

}  // namespace

double bubble_share(ScheduleKind kind, int64_t num_stages, int64_t num_micro_batches, int64_t num_chunks) {
  const double idle = static_cast<double>(num_stages - 1);
  const double busy = static_cast<double>(num_micro_batches * (kind == ScheduleKind::kZeroBubble ? 3 : num_chunks));
  return idle / (busy + idle);
}

RunPlan plan_run(const RunConfig& config) {
  RunPlan plan{.config = config, .partition = make_partition(config)};
  const TrainingConfig& training = config.training;
  const ScheduleKind kind = config.parallel.pipeline_schedule;
  const int64_t samples_at_once = training.micro_batch_size * config.grid.data;
  const int64_t stages = plan.partition.num_stages, chunks = plan.partition.num_chunks;
  plan.num_parameters = num_parameters(config.model);
  plan.num_micro_batches = *training.global_batch_size / samples_at_once;
  plan.tables = make_schedules(kind, stages, plan.num_micro_batches, chunks);
  plan.simulation = simulate(plan.tables, part_times(config, plan.partition));
  plan.equal_bubble = bubble_share(kind, stages, plan.num_micro_batches, chunks);
  if (!training.rampup_batch_size.empty()) {
    plan.first_num_micro_batches = training.rampup_batch_size[0] / samples_at_once;
    plan.first_bubble = bubble_share(kind, stages, *plan.first_num_micro_batches, chunks);
  }
  plan.memory = plan_memory(config, plan.partition, plan.num_micro_batches, default_products(training.precision));
  plan.messages = plan_messages(config, plan.partition, plan.num_micro_batches);
  plan.checkpoint_bytes = checkpoint_bytes(config);
  plan.checkpoint_weight_bytes = checkpoint_weight_bytes(config);
  plan.deepspeed_checkpoint_bytes = deepspeed_checkpoint_bytes(config);
  return plan;
}

}  // namespace espalier::plan
