#include "plan/run_plan.h"

#include <algorithm>

namespace espalier::plan {
namespace {

// Times of each part in forward passes of one layer.
std::vector<ActionTimes> part_times(const RunShape& run, const Partition& partition) {
  const std::vector<spec::Depth>& depths = run.model.depths;
  const double unit = depths[1].forward_flops;
  std::vector<ActionTimes> times;
  for (int64_t chunk = 0; chunk < partition.num_chunks; ++chunk)
    for (int64_t stage = 0; stage < partition.num_stages; ++stage) {
      const DepthRange& part = partition.part(stage, chunk);
      const int64_t layers = partition.layers(stage, chunk).count();
      double forward = 0, again = 0;
      for (int64_t depth = part.begin; depth < part.end; ++depth) {
        const double time = depths[static_cast<size_t>(depth)].forward_flops / unit;
        forward += time;
        const int64_t layer_of_part = depth - std::max<int64_t>(1, part.begin);
        if (0 < depth && depth <= run.model.num_layers() && run.is_recomputed(layer_of_part, layers)) again += time;
      }
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

RunPlan plan_run(const RunShape& run) {
  RunPlan plan{.run = run, .partition = make_partition(run)};
  const ScheduleKind kind = run.schedule;
  const int64_t stages = plan.partition.num_stages, chunks = plan.partition.num_chunks;
  plan.num_parameters = run.model.num_parameters();
  plan.num_micro_batches = run.num_micro_batches();
  plan.tables = make_schedules(kind, stages, plan.num_micro_batches, chunks);
  plan.simulation = simulate(plan.tables, part_times(run, plan.partition));
  plan.equal_bubble = bubble_share(kind, stages, plan.num_micro_batches, chunks);
  if (!run.rampup_batch_size.empty()) {
    plan.first_num_micro_batches = run.rampup_batch_size[0] / (run.micro_batch_size * run.grid.data);
    plan.first_bubble = bubble_share(kind, stages, *plan.first_num_micro_batches, chunks);
  }
  plan.memory = plan_memory(run, plan.partition, default_products(run.precision));
  plan.messages = plan_messages(run, plan.partition);
  plan.checkpoint_bytes = checkpoint_bytes(run);
  plan.checkpoint_weight_bytes = checkpoint_weight_bytes(run);
  plan.deepspeed_checkpoint_bytes = deepspeed_checkpoint_bytes(run);
  return plan;
}

}  // namespace espalier::plan
