#include "train/replica_check.h"

#include <ATen/ATen.h>

#include <string>
#include <type_traits>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"

namespace espalier::train {
namespace {

constexpr int64_t kNumFirstSteps = 3;
constexpr const char* kLearningRate = "learning_rate";

dist::CopyAxes axes_of(const spec::ParamSpec& spec, bool over_gradient) {
  return {.gradient = over_gradient,
          .tensor = spec.tensor_placement.kind == spec::Placement::Kind::kReplicated,
          .stages = spec.stages};
}

// "layers.0.mlp.dense_h_to_4h.weight.exp_avg", and which elements where it is a part.
std::string name_of(Job& job, const tensor::Param& param, const std::string& suffix, int64_t begin, int64_t end) {
  const int64_t count = job.params().layout().counts[job.params().index_of(param)];
  const std::string name = param.spec->name + suffix;
  return end - begin == count ? name : concat(name, "[", begin, ":", end, "]");
}

// Values that come and go (ZeRO 3) have one rank that holds them between steps.
void add_weights(Job& job, std::vector<dist::Copy>& copies) {
  for (const tensor::Param& param : job.params().params())
    if (param.value.defined()) copies.push_back({param.spec->name, param.value, axes_of(*param.spec, true)});
  for (const dist::OwnedPiece& piece : job.reducer().pieces())
    if (!piece.param->value.defined())
      copies.push_back(
          {name_of(job, *piece.param, "", piece.begin, piece.end), piece.value, axes_of(*piece.param->spec, false)});
}

// Calls visit(name, number) for each number of the run; the rest of the struct describes a checkpoint.
template <class Visit>
void visit_numbers(store::TrainingState& state, const Visit& visit) {
  store::TrainingState::visit_fields(state, [&](const char* name, auto& field) {
    using Field = std::remove_reference_t<decltype(field)>;
    if constexpr (std::is_same_v<Field, int64_t> || std::is_same_v<Field, double>) visit(name, field);
  });
}

template <class Number>
at::Tensor tensor_of(Number number) {
  return at::full({1}, number, std::is_same_v<Number, double> ? at::kDouble : at::kLong);
}

void add_numbers(Job& job, std::vector<dist::Copy>& copies) {
  store::TrainingState numbers = run_numbers(job.state());
  visit_numbers(numbers, [&](const char* name, auto number) {
    copies.push_back({name, tensor_of(number), dist::kEveryRank});
  });
  copies.push_back({kLearningRate, tensor_of(job.state().lr.lr()), dist::kEveryRank});
}

// The learning rate follows from the others.
void restore_numbers_from(const std::vector<dist::Copy>& copies, Job& job) {
  store::TrainingState numbers;
  visit_numbers(numbers, [&](const std::string& name, auto& number) {
    for (const dist::Copy& copy : copies)
      if (copy.name == name) number = copy.values.item<std::remove_reference_t<decltype(number)>>();
  });
  restore_numbers(numbers, job.state());
}

}  // namespace

std::vector<dist::Copy> replicated_state(Job& job) {
  std::vector<dist::Copy> copies;
  add_weights(job, copies);
  job.optimizer().visit_state([&](const optim::StatePiece& piece) {
    copies.push_back({name_of(job, *piece.param, "." + piece.kind, piece.begin, piece.end), piece.values,
                      axes_of(*piece.param->spec, !job.reducer().is_sharded())});
  });
  add_numbers(job, copies);
  return copies;
}

ReplicaCheck::ReplicaCheck(Job& job, report::RunLog& log)
    : job_(job), log_(log), step_(job.trainer().position().step) {}

void ReplicaCheck::after_step(const report::StepReport&) {
  ++step_;
  ++num_steps_;
  checked_ = false;
  const int64_t interval = job_.config().parallel.check_replicas;
  if (num_steps_ <= kNumFirstSteps || (interval > 0 && step_ % interval == 0)) check();
}

void ReplicaCheck::before_save() {
  if (!checked_ && !job_.config().checkpoint.save.empty()) check();
}

void ReplicaCheck::check() {
  checked_ = true;
  const dist::Grid& grid = job_.grid();
  if (grid.world.size() == 1) return;
  const std::vector<dist::Copy> copies = replicated_state(job_);
  const std::vector<dist::CopyDifference> differences = dist::find_differences(copies, grid);
  if (differences.empty()) return;
  if (job_.config().parallel.check_replicas_policy == config::ReplicaPolicy::kStop) {
    raise_alert(differences, "the run stops");
    throw UserError(concat("ranks differ in what must be equal on all of them, found after step ", step_, ":\n  ",
                           join(dist::describe(differences), "\n  "),
                           "\nNothing was saved at this step. Continue from a checkpoint (--load); or copy what most "
                           "ranks hold to the others: --check-replicas-policy repair."));
  }
  job_.before_change();
  dist::repair(copies, differences, grid);
  restore_numbers_from(copies, job_);
  const std::vector<dist::CopyDifference> left = dist::find_differences(replicated_state(job_), grid);
  raise_alert(differences, left.empty() ? "repaired" : "not repaired");
  if (!left.empty())
    throw UserError(concat("ranks still differ after the repair that followed step ", step_, ":\n  ",
                           join(dist::describe(left), "\n  "), "\nTest the memory of the machines of these ranks."));
}

void ReplicaCheck::raise_alert(const std::vector<dist::CopyDifference>& differences, const std::string& consequence) {
  if (job_.grid().rank != 0) return;
  for (const std::string& sentence : dist::describe(differences)) {
    log_warning("replica check after step ", step_, ": ", sentence, "; ", consequence);
    log_.event("alert", step_, concat("replica check: ", sentence, "; ", consequence));
  }
}

}  // namespace espalier::train
