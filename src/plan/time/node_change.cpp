#include "plan/time/node_change.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/format.h"
#include "plan/run_plan.h"

namespace espalier::plan {
namespace {

constexpr size_t kMostRows = 24;

int64_t nearest_multiple(int64_t number, int64_t of) {
  const int64_t below = number / of * of, above = below + of;
  if (below == 0) return above;
  return number - below < above - number ? below : number == below ? below : above;
}

NodeChange change_of(const RunShape& run, const Machine& machine, int64_t num_nodes, int64_t num_samples) {
  const int64_t devices = num_nodes * static_cast<int64_t>(machine.devices_per_node);
  const int64_t of_copy = run.grid.num_ranks() / run.grid.data;
  NodeChange change{.num_nodes = num_nodes, .data = devices / of_copy};
  change.spare_devices = devices - change.data * of_copy;
  const int64_t rounds = run.schedule == ScheduleKind::kInterleaved ? run.grid.pipeline : 1;
  RunShape changed = run;
  changed.grid.data = change.data;
  changed.rampup_batch_size.clear();
  changed.global_batch_size = change.global_batch_size =
      nearest_multiple(run.global_batch_size, run.micro_batch_size * change.data * rounds);
  change.step = StepClock(changed, machine).at();
  const double steps = std::ceil(static_cast<double>(num_samples) / static_cast<double>(change.global_batch_size));
  change.seconds = steps * change.step.seconds;
  change.device_hours = static_cast<double>(devices) * change.seconds / 3600;
  return change;
}

}  // namespace

std::vector<NodeChange> node_changes(const RunShape& run, const Machine& machine, int64_t num_samples) {
  const int64_t per_node = static_cast<int64_t>(machine.devices_per_node);
  const int64_t of_copy = run.grid.num_ranks() / run.grid.data;
  const auto nodes_of = [&](int64_t copies) { return (copies * of_copy + per_node - 1) / per_node; };
  const int64_t own = nodes_of(run.grid.data);
  std::set<int64_t> counts;
  for (const int64_t nodes : {own - 1, own, own + 1, nodes_of(run.grid.data - 1), nodes_of(run.grid.data + 1)})
    if (nodes * per_node >= of_copy) counts.insert(nodes);
  std::vector<NodeChange> changes;
  for (const int64_t nodes : counts) changes.push_back(change_of(run, machine, nodes, num_samples));
  return changes;
}

std::string node_change_text(const RunShape& run, const std::vector<NodeChange>& changes) {
  std::vector<std::vector<std::string>> rows = {
      {"nodes", "copies", "spare devices", "batch", "step", "tokens/s", "days", "device-hours"}};
  for (const NodeChange& change : changes)
    rows.push_back({format_count(change.num_nodes), format_count(change.data), format_count(change.spare_devices),
                    format_count(change.global_batch_size), format_printf("%.4g s", change.step.seconds),
                    format_count(std::llround(change.step.tokens)), format_fixed(change.seconds / kSecondsPerDay, 2),
                    format_count(std::llround(change.device_hours))});
  return concat("\nOne node more or less, with copies of ", run.grid.num_ranks() / run.grid.data,
                " devices, for the same samples at the full batch:\n", table_text(rows, 0));
}

std::string timetable_text(const RunShape& run, const Machine& machine, const RunTime& time) {
  std::vector<std::vector<std::string>> rows = {{"batch", "steps", "step", "until step", "until day", "tokens so far"}};
  const size_t stride = time.periods.size() / kMostRows + 1;
  int64_t steps = 0;
  for (size_t at = 0; at < time.periods.size(); ++at) {
    const BatchPeriod& period = time.periods[at];
    steps += period.num_steps;
    if (at % stride != 0 && at + 2 < time.periods.size()) continue;
    rows.push_back({format_count(period.global_batch_size), format_count(period.num_steps),
                    format_printf("%.4g s", period.step_seconds), format_count(steps),
                    format_fixed(period.end_seconds / kSecondsPerDay, 2),
                    format_printf("%.4g", static_cast<double>(period.end_samples * run.sequence_length))});
  }
  std::string title = concat("\nTimetable of the batch, micro-batches of ", run.micro_batch_size, " on ", machine.name);
  if (stride > 1) title += concat(", one of ", stride, " sizes");
  return title + ":\n" + table_text(rows, 0);
}

}  // namespace espalier::plan
