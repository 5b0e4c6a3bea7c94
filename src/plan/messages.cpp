#include "plan/messages.h"

#include <algorithm>

#include "plan/stage_params.h"
#include "plan/sum_tree.h"
#include "spec/flat_layout.h"
#include "spec/shard.h"

namespace espalier::plan {
namespace {

// Share of a message that leaves a rank of n.
double ring(int64_t n) { return static_cast<double>(n - 1) / static_cast<double>(n); }

// Of what a rank has of one element of each sample.
double element_of_micro_batch(const RunShape& run) {
  return static_cast<double>(run.micro_batch_size) / static_cast<double>(run.grid.context) *
         element_bytes(run.precision);
}

// Of one micro-batch through one part.
void add_part(const RunShape& run, const Partition& partition, int64_t stage, int64_t chunk, StageMessages& sent) {
  const spec::GridShape& grid = run.grid;
  const DepthRange& depths = partition.part(stage, chunk);
  const int64_t num_layers = partition.layers(stage, chunk).count(), last = run.model.num_layers() + 1;
  const double bytes = element_of_micro_batch(run);
  for (int64_t number = depths.begin; number < depths.end; ++number) {
    const spec::Depth& depth = run.model.depths[static_cast<size_t>(number)];
    const bool is_layer = 0 < number && number < last;
    const int64_t layer_of_part = number - std::max<int64_t>(1, depths.begin);
    const double forwards = is_layer && run.is_recomputed(layer_of_part, num_layers) ? 2 : 1;
    // An all-reduce, or with sequence parallelism its two halves, which send the same.
    sent.tensor +=
        2 * bytes * ring(grid.tensor) * (depth.summed_forward * forwards + depth.summed_once + depth.summed_backward);
    // Of the other sequence's sum on the way back sequence parallelism has one half on the way forward, a gathering.
    if (run.sequence_parallel)
      sent.tensor +=
          bytes * ring(grid.tensor) * depth.other_tokens * static_cast<double>(run.model.hidden_size) * (forwards - 1);
    sent.context += depth.exchanged / static_cast<double>(grid.tensor) * bytes * ring(grid.context) * (forwards + 1);
  }
  if (depths.end <= last) sent.pipeline += passed_on_bytes(run, depths.end - 1);
  if (depths.begin > 0) sent.pipeline += passed_on_bytes(run, depths.begin - 1);
}

double bytes_on_wire(const RunShape& run) { return run.grad_reduce_type == GradReduceType::kBf16 ? 2 : 4; }

// How often a section's gradients leave in a step. Those that come and go leave when another section's come: those of a
// shared parameter once for each of its depths, but where the last depth is one of them they stay from the end of a
// micro-batch, its first depth, to the beginning of the next.
double num_sends(const spec::FlatSection& section, const RunShape& run, const std::vector<spec::ParamSpec>& specs,
                 const spec::Sharing& sharing, double micro_batches) {
  // In canonical order all do, once per micro-batch.
  if (run.canonical_reduction && sharing.stage >= spec::ZeroStage::kGradients) return micro_batches;
  if (!spec::gradients_come_and_go(section, sharing)) return 1;
  const spec::ParamSpec& spec = specs[section.params[0]];
  const double depths = static_cast<double>(1 + spec.other_depths.size());
  const bool stays = section.is_shared && spec.is_used_at(run.model.num_layers() + 1);
  return stays ? micro_batches * (depths - 1) + 1 : micro_batches * depths;
}

// How often a section's values are gathered in a step: those that stay once, a layer's that come and go for each of its
// runs. What is gathered ahead unnecessarily, because a recomputed range turns round, is not counted.
double num_gathers(const spec::FlatSection& section, const spec::Sharing& sharing, const Recompute& recompute,
                   double micro_batches) {
  if (!spec::values_come_and_go(section, sharing)) return sharing.stage >= spec::ZeroStage::kOptimizer ? 1 : 0;
  // Of the layers up to this one; there is one stage, and its first layer has depth 1.
  const bool again = num_recomputed(recompute, section.depth) >= section.depth;
  return micro_batches * (again ? 3 : 2);
}

// Gradients and values between the ranks of data and context.
double data_bytes(const RunShape& run, const std::vector<spec::ParamSpec>& specs) {
  const auto micro_batches = static_cast<double>(run.num_micro_batches());
  const spec::Sharing sharing{static_cast<spec::ZeroStage>(run.zero_stage), run.num_sharers()};
  const double wire = bytes_on_wire(run), element = element_bytes(run.precision);
  // A reduce-scatter where a rank keeps its part, else an all-reduce.
  double ways = sharing.stage >= spec::ZeroStage::kOptimizer ? 1 : 2;
  // In canonical order the first half carries as many sums as a replica cannot join by itself.
  if (run.canonical_reduction && sharing.stage < spec::ZeroStage::kGradients) {
    size_t rounds = 1;
    for (const auto& nodes : nodes_of_replicas(run.num_micro_batches() * run.grid.data, run.grid.data))
      rounds = std::max(rounds, nodes.size());
    ways += static_cast<double>(rounds - 1);
  }
  const spec::FlatLayout layout = spec::flat_layout(specs, {run.grid.tensor, 0}, run.num_sharers());
  double bytes = 0;
  for (const spec::FlatSection& section : layout.sections) {
    double count = 0;
    for (const size_t param : section.params) count += static_cast<double>(layout.counts[param]);
    bytes += count * (ways * wire * num_sends(section, run, specs, sharing, micro_batches) +
                      element * num_gathers(section, sharing, run.recompute, micro_batches));
  }
  return bytes * ring(run.num_sharers());
}

// Once a step, between tensor ranks and between the stages that hold the same parameters.
void add_gradients(const RunShape& run, const std::vector<spec::ParamSpec>& specs, StageMessages& sent) {
  const double wire = bytes_on_wire(run);
  // An all-reduce; in canonical order every rank sends all it has to every other.
  const auto sum = [&](int64_t ranks) {
    return run.canonical_reduction ? static_cast<double>(ranks - 1) : 2 * ring(ranks);
  };
  const double owned = run.zero_stage >= 1 ? 1 / static_cast<double>(run.num_sharers()) : 1;
  double partial = 0;
  for (const spec::ParamSpec& spec : specs) {
    const double count = static_cast<double>(spec::num_local_elements(spec, {run.grid.tensor, 0}));
    const bool replicated = spec.tensor_placement.kind == spec::Placement::Kind::kReplicated;
    if (replicated && (run.sequence_parallel || spec.use_is_split)) partial += count;
    if (!spec.stages.empty()) sent.tied += count * wire * sum(static_cast<int64_t>(spec.stages.size())) * owned;
  }
  sent.tensor += partial * wire * sum(run.grid.tensor) * owned;
}

}  // namespace

double passed_on_bytes(const RunShape& run, int64_t depth) {
  const double bytes = element_of_micro_batch(run) / element_bytes(run.precision) * stream_element_bytes(run) *
                       run.model.depths[static_cast<size_t>(depth)].passed_on;
  return run.sequence_parallel ? bytes / static_cast<double>(run.grid.tensor) : bytes;
}

std::vector<StageMessages> plan_messages(const RunShape& run, const Partition& partition) {
  const auto micro_batches = static_cast<double>(run.num_micro_batches());
  std::vector<StageMessages> stages;
  for (int64_t stage = 0; stage < partition.num_stages; ++stage) {
    StageMessages sent;
    for (int64_t chunk = 0; chunk < partition.num_chunks; ++chunk) add_part(run, partition, stage, chunk, sent);
    sent.tensor *= micro_batches;
    sent.context *= micro_batches;
    sent.pipeline *= micro_batches;
    const std::vector<spec::ParamSpec> specs = stage_params(run.model.params, partition, stage);
    sent.data = data_bytes(run, specs);
    add_gradients(run, specs, sent);
    stages.push_back(sent);
  }
  return stages;
}

}  // namespace espalier::plan
