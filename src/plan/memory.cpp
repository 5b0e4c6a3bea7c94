#include "plan/memory.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <functional>
#include <numeric>

#include "plan/stage_params.h"
#include "plan/sum_tree.h"
#include "plan/zero_ranges.h"
#include "spec/optimizer.h"
#include "spec/state_storage.h"

namespace espalier::plan {
namespace {

constexpr double kFp32 = 4;

// The moment at which a rank holds most of a step's activations.
struct ActivationPeak {
  double kept = 0, workspace = 0;
  double total() const { return kept + workspace; }
};

// The messages of a rank's parts while it runs its table, as pipeline/runner.cpp holds them: those of an action are
// expected one action ahead, and gradients that were sent wait until twice as many others as there are parts have gone.
class MessagesHeld {
 public:
  MessagesHeld(const std::vector<PartActivations>& chunks, int64_t num_parts)
      : chunks_(chunks), num_parts_(num_parts) {}

  // While an action runs, which `next` follows (null: none does).
  double during(const Action* next) const {
    double bytes = std::accumulate(sent_.begin(), sent_.end(), 0.0);
    if (next == nullptr || next->kind == Action::Kind::kWeightGrad) return bytes;
    const PartActivations& part = chunks_[static_cast<size_t>(next->chunk)];
    return bytes + (next->kind == Action::Kind::kForward ? part.received : part.returned);
  }
  void after(const Action& action) {
    if (action.kind != Action::Kind::kBackward) return;
    const double received = chunks_[static_cast<size_t>(action.chunk)].received;
    if (received > 0) sent_.push_back(received);
    if (static_cast<int64_t>(sent_.size()) > 2 * num_parts_) sent_.pop_front();
  }

 private:
  const std::vector<PartActivations>& chunks_;
  int64_t num_parts_;
  std::deque<double> sent_;
};

ActivationPeak activation_peak(const std::vector<Action>& table, const std::vector<PartActivations>& chunks,
                               int64_t num_parts) {
  const bool splits = std::any_of(table.begin(), table.end(),
                                  [](const Action& action) { return action.kind == Action::Kind::kWeightGrad; });
  ActivationPeak most;
  double kept = 0;
  const auto consider = [&](double workspace) {
    if (kept + workspace > most.total()) most = {kept, workspace};
  };
  MessagesHeld messages(chunks, num_parts);
  for (size_t at = 0; at < table.size(); ++at) {
    const Action& action = table[at];
    const PartActivations& part = chunks[static_cast<size_t>(action.chunk)];
    const double held = messages.during(at + 1 < table.size() ? &table[at + 1] : nullptr);
    switch (action.kind) {
      case Action::Kind::kForward:
        consider(part.forward_peak + held);
        kept += part.kept;
        consider(held);
        break;
      case Action::Kind::kBackward:
        consider(part.backward_peak - part.kept + held);
        kept += (splits ? part.deferred : 0) - part.kept;
        break;
      case Action::Kind::kWeightGrad: kept -= part.deferred; break;
    }
    messages.after(action);
  }
  return most;
}

// Bytes of weights and gradients that a rank keeps, and of those that come and go in addition: two sections at once,
// one in use and one on its way.
struct SharedBytes {
  double kept = 0, passing = 0;
};

template <class ComeAndGo>
SharedBytes shared_bytes(const spec::FlatLayout& layout, double element, const spec::Sharing& sharing,
                         const ComeAndGo& come_and_go) {
  SharedBytes bytes;
  std::vector<double> passing = {0, 0};
  for (const spec::FlatSection& section : layout.sections) {
    const double whole = static_cast<double>(section.count()) * element;
    const bool passes = come_and_go(section, sharing);
    bytes.kept += passes ? whole / static_cast<double>(sharing.num_ranks) : whole;
    if (passes) passing.push_back(whole);
  }
  std::partial_sort(passing.begin(), passing.begin() + 2, passing.end(), std::greater<>());
  bytes.passing = passing[0] + passing[1];
  return bytes;
}

// Partial sums in canonical order that a rank keeps from micro-batch to micro-batch, each as large as all gradients.
double canonical_sums(const RunShape& run) {
  const int64_t replicas = run.grid.data, rounds = run.num_micro_batches();
  const bool is_divided = run.num_sharers() > 1 && static_cast<ZeroStage>(run.zero_stage) >= ZeroStage::kGradients;
  if (!is_divided) return static_cast<double>(most_sums_kept_of_replicas(rounds * replicas, replicas));
  return static_cast<double>(run.grid.context * most_sums_kept_between_rounds(rounds, replicas)) /
         static_cast<double>(run.num_sharers());
}

// Of a unit, when ranks exchange their sums: what was received, and the sums of this rank's part of it. Activations are
// gone by then.
double canonical_exchange(const RunShape& run, const spec::FlatLayout& layout) {
  size_t rounds = 0;
  for (const std::vector<SumNode>& nodes : nodes_of_replicas(run.num_micro_batches() * run.grid.data, run.grid.data))
    rounds = std::max(rounds, nodes.size());
  const double sums = std::bit_width(static_cast<uint64_t>(run.grid.data)) / static_cast<double>(run.num_sharers());
  return kFp32 * static_cast<double>(std::min(layout.size, ZeroShape{}.unit_elements)) *
         (static_cast<double>(rounds) + std::min(1.0, sums));
}

// Whole gradients in canonical order: those of several depths as long as a micro-batch's backward pass, and of other
// sections one in use, and one on its way with what the others send of it.
double canonical_passing(const spec::FlatLayout& layout, const spec::Sharing& sharing) {
  double shared = 0, largest = 0;
  for (const spec::FlatSection& section : layout.sections) {
    if (!spec::gradients_come_and_go(section, sharing)) continue;
    const double whole = kFp32 * static_cast<double>(section.count());
    if (section.is_shared)
      shared += whole;
    else
      largest = std::max(largest, whole);
  }
  return shared + std::max(shared, 3 * largest);
}

StageMemory stage_memory(const RunShape& run, const Partition& partition, int64_t stage,
                         const std::vector<Action>& table, ProductKind products) {
  const int64_t sharers = run.num_sharers();
  const spec::Sharing sharing{static_cast<spec::ZeroStage>(sharers > 1 ? run.zero_stage : 0), sharers};
  const std::vector<spec::ParamSpec> specs = stage_params(run.model.params, partition, stage);
  const spec::TensorShard shard{run.grid.tensor, 0};
  const spec::FlatLayout layout = spec::flat_layout(specs, shard, sharers);
  const double flat = static_cast<double>(layout.size);
  const Precision precision = run.precision;
  const SharedBytes weights = shared_bytes(layout, element_bytes(precision), sharing, spec::values_come_and_go);
  const SharedBytes gradients = shared_bytes(layout, kFp32, sharing, spec::gradients_come_and_go);
  StageMemory memory;
  for (const spec::ParamSpec& spec : specs) memory.num_parameters += spec::num_local_elements(spec, shard);
  memory.weights = weights.kept;
  memory.gradients = gradients.kept;
  memory.optimizer =
      parameter_bytes(precision, run.zero_stage, sharers, *run.optimizer, element_shares(specs, shard)).optimizer *
      flat;
  memory.gathered = gradients.passing;
  if (run.canonical_reduction) {
    memory.gradients += kFp32 * flat * canonical_sums(run);
    memory.gathered = canonical_passing(layout, sharing);
  }

  const auto chunks = [&](double layer_weights) {
    std::vector<PartActivations> parts;
    for (int64_t chunk = 0; chunk < partition.num_chunks; ++chunk)
      parts.push_back(part_activations(run, partition, stage, chunk, products, layer_weights));
    return parts;
  };
  for (const PartActivations& part : chunks(0)) memory.kept_by_micro_batch += part.kept;
  const int64_t num_parts = partition.num_stages * partition.num_chunks;
  ActivationPeak peak = activation_peak(table, chunks(0), num_parts);
  // Whole layers exist while layers run: most is held then, or at a moment when none does.
  if (const ActivationPeak in_layers = activation_peak(table, chunks(weights.passing), num_parts);
      in_layers.total() > peak.total()) {
    peak = {in_layers.kept, in_layers.workspace - weights.passing};
    memory.gathered += weights.passing;
  }
  // Rounded copies of all gradients are under way when the last backward passes end, and activations are gone.
  double wire = 0;
  if (sharers > 1 && sharing.stage < spec::ZeroStage::kGradients)
    wire = run.canonical_reduction                         ? canonical_exchange(run, layout)
           : run.grad_reduce_type == GradReduceType::kBf16 ? 2 * flat
                                                           : 0;
  if (wire > peak.total()) peak = {0, wire};
  memory.activations = peak.kept;
  memory.workspace = peak.workspace;
  return memory;
}

}  // namespace

ParameterBytes parameter_bytes(Precision precision, int64_t zero_stage, int64_t num_sharers,
                               const spec::OptimizerKind& optimizer, const spec::ElementShares& shares) {
  const double d = static_cast<double>(num_sharers);
  return {
      .weights = element_bytes(precision) / (zero_stage >= 3 ? d : 1),
      .gradients = kFp32 / (zero_stage >= 2 ? d : 1),
      .optimizer = spec::optimizer_bytes(optimizer, precision == Precision::kFp32, shares) / (zero_stage >= 1 ? d : 1)};
}

spec::ElementShares element_shares(const std::vector<spec::ParamSpec>& specs, const spec::TensorShard& shard) {
  double all = 0, matrices = 0, blocks = 0;
  for (const spec::ParamSpec& spec : specs) {
    const double count = static_cast<double>(spec::num_local_elements(spec, shard));
    all += count;
    if (!spec.matrices.empty()) matrices += count;
    if (spec::fits_moment_blocks(spec)) blocks += count;
  }
  return all > 0 ? spec::ElementShares{matrices / all, blocks / all} : spec::ElementShares{0, 0};
}

ParameterBytes parameter_bytes(const RunShape& run) {
  ParameterBytes bytes = parameter_bytes(run.precision, run.zero_stage, run.num_sharers(), *run.optimizer,
                                         element_shares(run.model.params));
  if (run.canonical_reduction) bytes.gradients += kFp32 * canonical_sums(run);
  return bytes;
}

ParameterBytes megatron_parameter_bytes(Precision precision, bool distributed_optimizer, int64_t num_sharers) {
  ParameterBytes bytes = parameter_bytes(precision, distributed_optimizer ? 1 : 0, num_sharers);
  if (precision != Precision::kFp16) return bytes;
  bytes.gradients = 2;
  bytes.optimizer = kFp32 * 4 / (distributed_optimizer ? static_cast<double>(num_sharers) : 1);
  return bytes;
}

const StageMemory& MemoryPlan::largest() const {
  return *std::max_element(stages.begin(), stages.end(),
                           [](const StageMemory& a, const StageMemory& b) { return a.peak() < b.peak(); });
}

MemoryPlan plan_memory(const RunShape& run, const Partition& partition, ProductKind products) {
  const auto tables = make_schedules(run.schedule, partition.num_stages, run.num_micro_batches(), partition.num_chunks);
  const Simulation simulation = simulate(tables, 1, 1, 1);
  const double samples = static_cast<double>(run.num_micro_batches() * run.micro_batch_size);
  MemoryPlan plan;
  for (size_t stage = 0; stage < tables.size(); ++stage) {
    plan.stages.push_back(stage_memory(run, partition, static_cast<int64_t>(stage), tables[stage], products));
    plan.stages.back().most_alive = simulation.most_alive[stage];
    plan.stages.back().batches = samples * run.model.batch_bytes;
  }
  return plan;
}

double checkpoint_weight_bytes(const RunShape& run) {
  return static_cast<double>(run.model.num_parameters()) * element_bytes(run.precision);
}

double checkpoint_bytes(const RunShape& run) {
  const ParameterBytes each = parameter_bytes(run.precision, 0, 1, *run.optimizer, element_shares(run.model.params));
  return static_cast<double>(run.model.num_parameters()) * (each.weights + each.optimizer);
}

double deepspeed_checkpoint_bytes(const RunShape& run) {
  const ParameterBytes each = parameter_bytes(run.precision, 0, 1, *run.optimizer, {.matrices = 0});
  double copies = 0;
  // Its pipelines share nothing but the embedding with the output.
  const std::vector<int64_t> output = {run.model.num_layers() + 1};
  if (run.grid.pipeline > 1)
    for (const spec::ParamSpec& spec : run.model.params)
      if (spec.other_depths == output) copies += static_cast<double>(spec.num_elements());
  return checkpoint_bytes(run) + copies * (each.weights + each.optimizer);
}

}  // namespace espalier::plan
