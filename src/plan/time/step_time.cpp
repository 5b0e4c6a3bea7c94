#include "plan/time/step_time.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "plan/flops.h"
#include "plan/memory.h"
#include "plan/messages.h"
#include "plan/simulate.h"
#include "plan/stage_params.h"
#include "plan/time/collectives.h"
#include "plan/time/work.h"
#include "spec/optimizer.h"
#include "spec/shard.h"

namespace espalier::plan {
namespace {

void add(StepParts& parts, const WorkTime& time) {
  parts.matrices += time.matrices;
  parts.attention += time.attention;
  parts.moving += time.moving;
}

void add(StepParts& sum, const StepParts& parts, double times) {
  sum.matrices += times * parts.matrices;
  sum.attention += times * parts.attention;
  sum.moving += times * parts.moving;
  sum.recompute += times * parts.recompute;
  sum.tensor += times * parts.tensor;
  sum.context += times * parts.context;
  sum.pipeline += times * parts.pipeline;
}

// What a rank has of one element of each sample of a micro-batch, in bytes.
double micro_batch_element(const RunShape& run) {
  return static_cast<double>(run.micro_batch_size) / static_cast<double>(run.grid.context) *
         element_bytes(run.precision);
}

// Sums over tensor ranks, of this many elements a sample.
double tensor_seconds(const RunShape& run, const Machine& machine, const spec::Depth& depth, double elements) {
  if (elements <= 0) return 0;
  const double tokens = depth.tokens > 0 ? depth.tokens : static_cast<double>(run.sequence_length);
  const double times = std::max(1.0, elements / (tokens * static_cast<double>(run.model.hidden_size)));
  return ring_seconds(machine, tensor_ring(machine, run.grid), elements * micro_batch_element(run), 2, times);
}

double context_seconds(const RunShape& run, const Machine& machine, const spec::Depth& depth) {
  const double bytes = depth.exchanged / static_cast<double>(run.grid.tensor) * micro_batch_element(run);
  return ring_seconds(machine, context_ring(machine, run.grid), bytes, 1, 2);
}

// A message to the next part, from a part whose last depth that is.
double message_seconds(const RunShape& run, const Machine& machine, int64_t depth) {
  if (run.grid.pipeline == 1) return 0;
  const double whole = passed_on_bytes(run, depth);
  if (!machine.program.divides_stages || run.sequence_parallel) return stage_seconds(machine, run.grid, whole);
  return stage_seconds(machine, run.grid, whole / static_cast<double>(run.grid.tensor)) +
         ring_seconds(machine, tensor_ring(machine, run.grid), whole, 1);
}

double wire_bytes(const RunShape& run) { return run.grad_reduce_type == GradReduceType::kBf16 ? 2 : 4; }

double num_local(const std::vector<spec::ParamSpec>& specs, int64_t tensor) {
  double count = 0;
  for (const spec::ParamSpec& spec : specs) count += static_cast<double>(spec::num_local_elements(spec, {tensor, 0}));
  return count;
}

// Of the parameters that a part uses, those that one rank holds.
double part_parameters(const RunShape& run, const DepthRange& part) {
  double count = 0;
  for (const spec::ParamSpec& spec : run.model.params) {
    const bool used = part.contains(spec.depth) || std::any_of(spec.other_depths.begin(), spec.other_depths.end(),
                                                               [&part](int64_t depth) { return part.contains(depth); });
    if (used) count += static_cast<double>(spec::num_local_elements(spec, {run.grid.tensor, 0}));
  }
  return count;
}

}  // namespace

double StepParts::total() const {
  return matrices + attention + moving + recompute + tensor + context + pipeline + bubble + data + optimizer;
}

namespace {

std::array<std::pair<const char*, double>, 4> limits(const StepParts& parts) {
  return {{{"compute", parts.matrices + parts.attention + parts.moving + parts.recompute + parts.optimizer},
           {"messages between tensor ranks", parts.tensor + parts.context},
           {"pipeline bubble", parts.bubble + parts.pipeline},
           {"messages between data-parallel ranks", parts.data}}};
}

std::pair<const char*, double> largest_limit(const StepParts& parts) {
  const auto all = limits(parts);
  return *std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
}

}  // namespace

std::string StepTime::limit() const { return largest_limit(parts).first; }
double StepTime::limit_share() const { return largest_limit(parts).second / seconds; }

StepClock::StepClock(const RunShape& run, const Machine& machine)
    : run_(run), machine_(machine), partition_(make_partition(run)) {
  for (int64_t chunk = 0; chunk < partition_.num_chunks; ++chunk)
    for (int64_t stage = 0; stage < partition_.num_stages; ++stage) passes_.push_back(pass_time(stage, chunk));
  for (int64_t stage = 0; stage < partition_.num_stages; ++stage) tails_.push_back(tail_of(run, stage));
}

PassTime StepClock::pass_time(int64_t stage, int64_t chunk) const {
  const DepthRange& part = partition_.part(stage, chunk);
  const int64_t layers = partition_.layers(stage, chunk).count(), last = run_.model.num_layers() + 1;
  PassTime pass;
  for (int64_t number = part.begin; number < part.end; ++number) {
    const spec::Depth& depth = run_.model.depths[static_cast<size_t>(number)];
    const DepthWork work = depth_work(run_, number, machine_.program);
    const WorkTime forward = work_time(work.forward, machine_, run_.precision);
    const double weights = matrix_seconds(work.weight_flops, machine_, run_.precision);
    const double summed = tensor_seconds(run_, machine_, depth, depth.summed_forward);
    const double exchanged = context_seconds(run_, machine_, depth);
    add(pass.forward, forward);
    pass.forward.tensor += summed + tensor_seconds(run_, machine_, depth, depth.summed_once);
    pass.forward.context += exchanged;
    add(pass.backward, work_time(work.backward, machine_, run_.precision));
    const double back = tensor_seconds(run_, machine_, depth, depth.summed_backward);
    pass.backward.tensor += machine_.program.overlaps_tensor ? std::max(0.0, back - weights) : back;
    pass.backward.context += exchanged;
    pass.weight_seconds += weights;
    const bool is_layer = 0 < number && number < last;
    if (!is_layer || !run_.is_recomputed(number - std::max<int64_t>(1, part.begin), layers)) continue;
    pass.backward.recompute += forward.total();
    pass.backward.tensor += summed;
    pass.backward.context += exchanged;
  }
  const double added = machine_.program.gradient_bytes * part_parameters(run_, part) / machine_.memory_bandwidth;
  pass.backward.moving += added;
  pass.weight_seconds += added;
  if (part.end <= last) pass.forward.pipeline = message_seconds(run_, machine_, part.end - 1);
  if (part.begin > 0) pass.backward.pipeline = message_seconds(run_, machine_, part.begin - 1);
  return pass;
}

StepClock::Tail StepClock::tail_of(const RunShape& run, int64_t stage) const {
  const std::vector<spec::ParamSpec> specs = stage_params(run.model.params, partition_, stage);
  const double count = num_local(specs, run.grid.tensor), wire = wire_bytes(run);
  const double sharers = static_cast<double>(run.num_sharers());
  const bool divides = run.zero_stage >= 1 && sharers > 1;
  const bool whole = !divides || machine_.program.sums_whole;
  const RingPlace ring = sharer_ring(machine_, run.grid);
  Tail tail;
  if (run.zero_stage >= 2 && sharers > 1) {
    // What plan_messages() counts has left a rank already: as if that were all of a single way.
    const double sent = plan_messages(run, partition_)[static_cast<size_t>(stage)].data;
    tail.gradients = ring_seconds(machine_, ring, sent * sharers / (sharers - 1), 1);
  } else {
    tail.gradients = ring_seconds(machine_, ring, wire * count, whole ? 2 : 1);
    if (divides) tail.rest = ring_seconds(machine_, ring, element_bytes(run.precision) * count, 1);
  }
  const int64_t ranks_of_stage = run.grid.num_ranks() / run.grid.pipeline;
  for (const spec::ParamSpec& spec : specs) {
    if (spec.stages.size() < 2) continue;
    const double held = static_cast<double>(spec::num_local_elements(spec, {run.grid.tensor, 0}));
    tail.rest +=
        ring_seconds(machine_,
                     ring_place(machine_, run.grid, ranks_of_stage * (spec.stages.back() - spec.stages.front()),
                                static_cast<int64_t>(spec.stages.size())),
                     wire * held / (whole ? 1 : sharers), 2);
  }
  // State and gradients of what the rank updates: read and written once; gradients cleared, and read for the norm.
  const double owned = divides ? count / sharers : count;
  const double state =
      spec::optimizer_bytes(*run.optimizer, run.precision == Precision::kFp32, element_shares(run.model.params));
  tail.optimizer = (owned * (2 * state + 4 + 4 + element_bytes(run.precision)) + 4 * count) / machine_.memory_bandwidth;
  return tail;
}

StepTime StepClock::at(int64_t global_batch_size) const {
  RunShape run = run_;
  run.global_batch_size = global_batch_size;
  const int64_t micro_batches = run.num_micro_batches(), stages = partition_.num_stages;
  const bool blocks = machine_.program.blocks_on_stages;
  std::vector<ActionTimes> times;
  for (const PassTime& pass : passes_) {
    const double forward = pass.forward.total() - pass.forward.pipeline;
    const double backward = pass.backward.total() - pass.backward.pipeline - pass.weight_seconds;
    times.push_back({.forward = forward + (blocks ? pass.forward.pipeline : 0),
                     .backward_input = backward + (blocks ? pass.backward.pipeline : 0),
                     .backward_weight = pass.weight_seconds,
                     .message = blocks ? 0 : std::max(pass.forward.pipeline, pass.backward.pipeline)});
  }
  const Simulation simulation =
      simulate(make_schedules(run.schedule, stages, micro_batches, partition_.num_chunks), times);

  StepTime step;
  double reduced = 0, finish = 0, most = 0;
  for (int64_t stage = 0; stage < stages; ++stage) {
    const std::vector<Span>& spans = simulation.spans[static_cast<size_t>(stage)];
    // Under ZeRO 2 and 3 gradients and weights travel in every micro-batch.
    const Tail tail = run.zero_stage >= 2 ? tail_of(run, stage) : tails_[static_cast<size_t>(stage)];
    double hidden = 0, busy = 0;
    for (const Span& span : spans) busy += span.end - span.start;
    const ActionTimes& last = times[static_cast<size_t>(stage)];
    if (machine_.program.overlaps_data)
      hidden = run.zero_stage >= 2 ? busy * 2 / 3 : last.backward_input + last.backward_weight;
    const double exposed = std::max(0.0, tail.gradients - hidden);
    reduced = std::max(reduced, run.passes_per_step * (spans.back().end + exposed));
    finish = std::max(finish, tail.rest + tail.optimizer);
    if (busy <= most * (1 + 1e-9)) continue;  // the first of those that take the same
    most = busy;
    step.busiest_stage = stage;
    step.parts = {.data = run.passes_per_step * exposed + tail.rest, .optimizer = tail.optimizer};
  }
  step.seconds = reduced + finish;
  for (int64_t chunk = 0; chunk < partition_.num_chunks; ++chunk) {
    const double count = run.passes_per_step * static_cast<double>(micro_batches);
    add(step.parts, pass(step.busiest_stage, chunk).forward, count);
    add(step.parts, pass(step.busiest_stage, chunk).backward, count);
  }
  if (!blocks) step.parts.pipeline = 0;  // a wait, where it is not hidden, is part of the bubble
  step.parts.bubble = std::max(0.0, step.seconds - step.parts.total());

  const double samples = static_cast<double>(global_batch_size), ranks = static_cast<double>(run.grid.num_ranks());
  step.hardware_flops = samples * run.passes_per_step *
                        plan::hardware_flops(run.model, num_recomputed_layers(run.recompute, partition_)) /
                        step.seconds / ranks;
  step.model_flops = samples * plan::model_flops(run.model) / step.seconds / ranks;
  step.utilization =
      step.model_flops / (run.precision == Precision::kFp32 ? machine_.peak_flops_fp32 : machine_.peak_flops);
  step.tokens = samples * static_cast<double>(run.sequence_length) / step.seconds;
  return step;
}

}  // namespace espalier::plan
