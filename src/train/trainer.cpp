#include "train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "base/work_profile.h"
#include "models/data.h"
#include "plan/schedule.h"
#include "tensor/device_memory.h"
#include "tensor/observe.h"

namespace espalier::train {
namespace {

plan::BatchRamp make_ramp(const config::TrainingConfig& training) {
  const auto& ramp = training.rampup_batch_size;
  if (ramp.empty()) return plan::BatchRamp(*training.global_batch_size);
  return plan::BatchRamp(ramp[0], ramp[1], ramp[2], *training.global_batch_size);
}

report::GpuMemory memory_of(at::Device device) {
  const tensor::DeviceMemory memory = tensor::device_memory(device);
  return {memory.allocated, memory.peak_allocated, memory.reserved, memory.peak_reserved};
}

// Shares of parameters are distinguished by their place.
void show_gradients(const dist::GradReducer& reducer) {
  tensor::TensorObserver* const observer = tensor::observer();
  if (observer == nullptr) return;
  for (const dist::OwnedPiece& piece : reducer.pieces()) {
    const std::string& name = piece.param->spec->name;
    observer->see(reducer.is_sharded() ? concat(name, ", elements ", piece.begin, " to ", piece.end - 1) : name,
                  piece.grad, {.pass = tensor::Pass::kGradient});
  }
}

}  // namespace

double mean_loss(const pipeline::LossTotal& total, config::LossAverage average) {
  return average == config::LossAverage::kToken ? total.sum / total.count : total.sum_of_means / total.num_means;
}

Trainer::Trainer(const config::RunConfig& config, const Parts& parts)
    : config_(config),
      parts_(parts),
      ramp_(make_ramp(config.training)),
      statistics_(config.training.skip_step_sigma, config.training.skip_step_window),
      ahead_(parts.loader) {}

int64_t Trainer::num_micro_batches() const {
  return ramp_.global_batch_size(position_.consumed_samples) /
         (config_.training.micro_batch_size * parts_.grid.shape.data);
}

// Where the batches say what a term is a mean over, backward runs on that: on sum / targets, or on the sum of means /
// micro-batches with targets. Else it runs on sum / nominal tokens, or on means / micro-batches: both are known before
// the first forward pass. The optimizer corrects to the tokens, or the micro-batches with tokens, that there were
// (correction).
pipeline::GradientFactor Trainer::loss_factor(const pipeline::LossTerm& term, int64_t num_micro_batches,
                                              const LossTargets& targets) const {
  const double scale = parts_.optimizer.loss_scale();
  const bool by_token = config_.training.loss_average == config::LossAverage::kToken;
  const int64_t of_all_replicas = num_micro_batches * parts_.grid.shape.data;
  if (targets.empty()) {
    const int64_t nominal = by_token ? config_.training.micro_batch_size * tokens_of_sample() : 1;
    return {scale, static_cast<double>(of_all_replicas * nominal), /*by_count=*/!by_token};
  }
  const LossTargets::Count& all = targets.of(term.targets_of.empty() ? term.name : term.targets_of);
  const double divisor = by_token ? all.targets : all.num_micro_batches;
  if (divisor == 0) return 0.0;
  return {scale, divisor, /*by_count=*/!by_token};
}

int64_t Trainer::tokens_of_sample() const { return config::tokens_of_sample(config_, position_.consumed_samples); }

data::LengthStage Trainer::length() const {
  return data::length_at(config_.data.length_stages, position_.consumed_samples, config_.data.sequence_length);
}

// A divided sample is so many sequences.
SampleFlops Trainer::flops_of_sample() {
  const int64_t length = this->length().length;
  if (known_flops_.first != length) known_flops_ = {length, parts_.flops(length)};
  const double count = static_cast<double>(tokens_of_sample()) / static_cast<double>(length);
  return {known_flops_.second.model * count, known_flops_.second.hardware * count};
}

// Tokens of a step (or its micro-batches) by those that count; the others are masked.
double Trainer::correction(const pipeline::LossTotal& total, const report::StepReport& report) const {
  const bool by_token = config_.training.loss_average == config::LossAverage::kToken;
  const int64_t samples = report.global_batch_size;
  const double nominal =
      static_cast<double>(by_token ? samples * tokens_of_sample() : samples / config_.training.micro_batch_size);
  const double actual = by_token ? total.count : total.num_means;
  return actual > 0 ? nominal / actual : 1.0;
}

std::vector<report::NamedLoss> Trainer::named_losses(const std::vector<pipeline::LossTotal>& totals) const {
  std::vector<report::NamedLoss> losses;
  for (const pipeline::LossTotal& total : totals) {
    if (totals.size() > 1 && total.count == 0) continue;  // a term without targets in this step; the others go on
    report::NamedLoss loss{.name = total.name,
                           .value = mean_loss(total, config_.training.loss_average),
                           .is_measure = total.is_measure,
                           .by_source = {}};
    for (size_t source = 0; source < total.by_source.size(); ++source)
      if (total.by_source[source].count > 0)
        loss.by_source.push_back({parts_.loader.source().source_names()[source],
                                  total.by_source[source].sum / total.by_source[source].count,
                                  total.by_source[source].count});
    losses.push_back(std::move(loss));
  }
  return losses;
}

// A step whose targets are all masked has no loss; nothing went wrong.
bool Trainer::are_finite(const std::vector<pipeline::LossTotal>& totals) const {
  return std::all_of(totals.begin(), totals.end(), [&](const pipeline::LossTotal& total) {
    return total.count == 0 || std::isfinite(mean_loss(total, config_.training.loss_average));
  });
}

// Of a step without targets there is nothing to say.
std::string Trainer::objection(const std::vector<pipeline::LossTotal>& totals, double grad_norm) {
  double loss = 0, count = 0;
  for (const pipeline::LossTotal& total : totals) {
    if (total.count == 0 || total.is_measure) continue;
    loss += mean_loss(total, config_.training.loss_average);
    count += total.count;
  }
  return count > 0 ? statistics_.judge({loss, grad_norm}) : "";
}

// Gradients, summed over the ranks, and losses of the whole batch.
std::vector<pipeline::LossTotal> Trainer::run_batch(const std::vector<tensor::Batch>& micro_batches,
                                                    const LossTargets& targets) {
  const auto count = static_cast<int64_t>(micro_batches.size());
  const config::ParallelConfig& parallel = config_.parallel;
  pipeline::AfterMicroBatch after;
  if (parallel.canonical_reduction) after = [&] { parts_.reducer.end_micro_batch(); };
  parts_.reducer.begin_step(count);
  const pipeline::LossRecord losses = parts_.runner.train(
      plan::make_schedule(parallel.pipeline_schedule, parts_.grid.shape.pipeline, parts_.grid.position.pipeline, count,
                          parallel.num_chunks),
      micro_batches, [&](const pipeline::LossTerm& term) { return loss_factor(term, count, targets); }, after);
  parts_.reducer.finish_step();
  // A device has been given all its work by now; before, nothing has waited for it.
  if (parallel.canonical_reduction)
    return pipeline::combine_losses_in_order(losses.by_micro_batch(count), parts_.loader.takes_turns(), parts_.grid);
  return pipeline::combine_losses(losses.totals(), parts_.grid);
}

// A pass of its own, with the step's samples and at its weights. Who observes the step does not see it.
void Trainer::estimate_curvature(std::vector<tensor::Batch> micro_batches, const LossTargets& targets,
                                 const report::StepReport& report) {
  RECORD_USER_SCOPE("curvature");
  tensor::TensorObserver* const observer = tensor::observer();
  tensor::set_observer(nullptr);
  const at::Tensor seed = at::full({}, config_.training.seed, at::kLong);
  for (tensor::Batch& batch : micro_batches) batch.extra[models::kDrawnLabels] = seed;
  const pipeline::LossTotal total = run_batch(micro_batches, targets)[0];
  tensor::set_observer(observer);
  if (!parts_.optimizer.update_curvature(total.count, targets.empty() ? correction(total, report) : 1.0))
    log_warning("the estimate of the curvature in step ", position_.step + 1,
                " is not finite, or of no targets: the one before stays");
}

report::StepReport Trainer::step() {
  const auto start = std::chrono::steady_clock::now();
  const int64_t num_micro_batches = this->num_micro_batches();
  report::StepReport report;
  report.global_batch_size = num_micro_batches * config_.training.micro_batch_size * parts_.grid.shape.data;
  report.sequence_length = tokens_of_sample();
  if (!config_.data.length_stages.empty()) report.curriculum_length = length().length;
  const SampleFlops flops = flops_of_sample();

  std::vector<tensor::Batch> micro_batches;
  {
    RECORD_USER_SCOPE("load");
    const WorkSpan span(Work::kData, "samples");
    micro_batches = ahead_.read({position_.consumed_samples, num_micro_batches, config_.training.micro_batch_size});
    read_ahead();
    report.sample_hash = sample_hash(micro_batches, parts_.grid.data);
    for (tensor::Batch& batch : micro_batches) batch = batch.to(parts_.grid.device);
  }
  const LossTargets targets(micro_batches, parts_.grid.data);
  const bool estimates = parts_.optimizer.wants_curvature();
  if (estimates) estimate_curvature(micro_batches, targets, report);
  std::vector<pipeline::LossTotal> totals;
  {
    RECORD_USER_SCOPE("forward and backward");
    if (parts_.logits != nullptr) parts_.logits->begin();
    totals = run_batch(micro_batches, targets);
    if (parts_.logits != nullptr) parts_.logits->end();
    if (on_not_finite_ && !are_finite(totals)) on_not_finite_([&] { run_batch(micro_batches, targets); });
    show_gradients(parts_.reducer);
  }
  {
    RECORD_USER_SCOPE("optimizer");
    const WorkSpan span(Work::kOptimizer, "step");
    if (parts_.optimizer.loss_scaler() != nullptr) report.loss_scale = parts_.optimizer.loss_scale();
    report.lr_phase = parts_.lr.phase();
    report.weight_decay = parts_.lr.weight_decay();
    if (report.weight_decay) parts_.optimizer.set_weight_decay(*report.weight_decay);
    const optim::StepResult result =
        parts_.optimizer.step(parts_.lr.lr(), targets.empty() ? correction(totals[0], report) : 1.0, [&](double norm) {
          report.objection = objection(totals, norm);
          return report.objection.empty();
        });
    report.learning_rate = result.lr;
    report.grad_norm = result.grad_norm;
    report.num_zeros = result.num_zeros;
    report.max_attention_logit = result.max_logit;
    report.skipped = result.skipped;
  }
  report.losses = named_losses(totals);
  report.nan = !are_finite(totals);
  count(report);
  report.step = position_.step;
  report.num_steps = config_.training.num_steps;
  report.consumed_samples = position_.consumed_samples;
  report.consumed_tokens = position_.consumed_tokens;
  report.num_ranks = parts_.grid.shape.num_ranks();
  report.num_replicas = parts_.grid.shape.data;
  report.next_learning_rate = parts_.lr.lr();
  if (config_.logging.log_params_norm) report.params_norm = parts_.optimizer.params_norm();
  if (parts_.grid.device.is_cuda()) report.gpu_memory = memory_of(parts_.grid.device);
  const double samples = static_cast<double>(report.global_batch_size);
  report.model_flops = samples * flops.model;
  report.hardware_flops = samples * flops.hardware * (estimates ? 2 : 1);
  {
    const WorkSpan span(Work::kData, "samples of the next step");
    ahead_.wait();  // whoever sees the step may read the data
  }
  report.step_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

// While a device computes the host has time for it; a CPU would have to share its cores.
void Trainer::read_ahead() {
  if (parts_.grid.device.is_cpu() || position_.step + 1 >= config_.training.num_steps) return;
  const int64_t next = position_.consumed_samples + ramp_.global_batch_size(position_.consumed_samples);
  const int64_t of_turn = config_.training.micro_batch_size * parts_.grid.shape.data;
  ahead_.begin({next, ramp_.global_batch_size(next) / of_turn, config_.training.micro_batch_size});
}

void Trainer::skip_step() {
  report::StepReport report;
  report.global_batch_size = num_micro_batches() * config_.training.micro_batch_size * parts_.grid.shape.data;
  count(report);
}

void Trainer::count(const report::StepReport& report) {
  // As under Megatron, a skipped step consumes its samples but does not move the learning rate; tokens are counted
  // after the scheduler's step, which therefore sees those of the steps before.
  const int64_t tokens = report.global_batch_size * tokens_of_sample();
  if (!report.skipped) parts_.lr.step(report.global_batch_size, position_.consumed_tokens);
  ++position_.step;
  position_.consumed_samples += report.global_batch_size;
  position_.consumed_tokens += tokens;
  position_.skipped_steps += report.skipped;
  position_.nan_steps += report.nan;
}

}  // namespace espalier::train
