#include "train/evaluations.h"

#include "base/format.h"
#include "base/stop_signals.h"
#include "base/whereabouts.h"
#include "train/evaluate.h"

namespace espalier::train {

void Evaluations::after_step(const report::StepReport& report) {
  const config::DataConfig& data = job_.config().data;
  if (data.eval_iters > 0 && report.step % data.eval_interval == 0)
    evaluate_sets("valid", concat("iteration ", report.step), When::kDuring);
}

void Evaluations::after_training() {
  if (job_.config().data.eval_iters == 0) return;
  evaluate_at_end("valid");
  evaluate_at_end("test");
}

void Evaluations::alone() {
  evaluate_sets("valid", "the end of training for val data", When::kDuring);
  evaluate_sets("test", "the end of training for test data", When::kDuring);
}

void Evaluations::evaluate_at_end(const std::string& kind) {
  if (has_evaluated_at_end(kind)) return;
  evaluate_sets(kind, kind == "valid" ? "the end of training for val data" : "the end of training for test data",
                When::kAtEnd);
}

// A run that had ended and is started again does not say it all a second time.
bool Evaluations::has_evaluated_at_end(const std::string& kind) const {
  const bool found = job_.grid().rank == 0 && !job_.config().checkpoint.save.empty() &&
                     report::has_last_evaluation(job_.config().checkpoint.save, job_.trainer().position().step, kind);
  return job_.grid().world.any(found);
}

void Evaluations::evaluate_sets(const std::string& kind, const std::string& when, When moment) {
  const bool valid = kind == "valid";
  const std::vector<Loader>& loaders = valid ? job_.valid_loaders() : job_.test_loaders();
  if (loaders.empty()) return;
  set_awaited(concat("the evaluation at ", when));
  set_phase(RunPhase::kEvaluate, job_.trainer().position().step);
  RunPosition& run = job_.trainer().position();
  Evaluation what{.first_sample = 0,
                  .num_iterations = job_.config().data.eval_iters,
                  .num_micro_batches = job_.trainer().num_micro_batches()};  // of one replica
  // Each set continues where its last evaluation ended, as Megatron's iterators do.
  if (valid) what.first_sample = run.consumed_valid_samples / static_cast<int64_t>(loaders.size());
  std::vector<report::MetricsFile::SetLosses> sets;
  job_.optimizer().use_mean(true);
  for (const Loader& loader : loaders) {
    if (!loader.source().has_labels()) continue;
    const std::string& name = loader.source().name();
    sets.push_back({name, evaluate(job_.config(), {job_.grid(), job_.runner(), loader, job_.label_bytes()}, what,
                                   "evaluate " + name)});
    if (valid && moment == When::kDuring)
      run.consumed_valid_samples += what.num_iterations * what.num_micro_batches *
                                    job_.config().training.micro_batch_size * job_.grid().shape.data;
  }
  job_.optimizer().use_mean(false);
  if (sets.empty()) return;
  const RunPosition& at = job_.trainer().position();
  const std::string of = job_.config().data.eval_ema ? ", moving average of the weights" : "";
  log_.evaluation({.kind = kind, .when = when + of, .at_end = moment == When::kAtEnd}, sets,
                  {at.step, at.consumed_samples, at.consumed_tokens});
}

}  // namespace espalier::train
