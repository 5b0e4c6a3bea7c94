#include "train/run.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/stop_signals.h"
#include "train/evaluate.h"
#include "train/finite_check.h"
#include "train/job.h"
#include "train/replica_check.h"
#include "train/run_log.h"
#include "train/saving.h"
#include "train/step_trace.h"

namespace espalier::train {
namespace {

class Loop {
 public:
  Loop(const config::RunConfig& config, const OptionTable& table, const dist::Grid& grid)
      : grid_(grid),
        job_(config, table, grid),
        config_(job_.config()),
        log_(config_, table, job_.trainer().position().step, grid.rank == 0),
        replicas_(job_, log_),
        finite_(job_, log_),
        saving_(job_, log_) {}

  // The run is one from here on: its folder stays.
  void keep_folder(const std::string& command_line) {
    if (job_.held_folder() != nullptr) job_.held_folder()->keep(job_.resolved_options(), command_line + "\n");
  }
  void run();
  // What is still to be done when the run ends by this error.
  void end_by(const std::exception& error);

 private:
  enum class When { kDuring, kAtEnd };  // of training

  void train();
  void train_step();
  void end();
  bool skip_steps();
  // Why the run has to stop after this step, if it has to: on this rank, and on any of them (the first that has a
  // reason).
  std::optional<std::string> own_reason_to_stop() const;
  std::optional<std::string> reason_to_stop(std::optional<std::string> own);
  bool restored_folder();
  void stop(const std::string& reason);
  void save();
  void evaluate_sets(const std::string& kind, const std::string& when, When moment);
  void evaluate_at_end(const std::string& kind);
  bool has_evaluated_at_end(const std::string& kind) const;
  void trace_before_step(int64_t next_step);
  void trace_after_step(int64_t step);
  TensorBoardLog::Position position() const;

  const StopSignals signals_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const dist::Grid& grid_;
  Job job_;
  const config::RunConfig& config_;
  RunLog log_;
  ReplicaCheck replicas_;
  FiniteCheck finite_;
  Saving saving_;
  StepTrace trace_;
  bool was_over_ = false;  // nothing was left to train when this run began
};

bool kill_switch_present(const config::RunConfig& config) {
  return !config.training.kill_switch_path.empty() && std::filesystem::exists(config.training.kill_switch_path);
}

std::string kill_switch_reason(const config::RunConfig& config) {
  return concat("Detected kill switch at ", config.training.kill_switch_path, ". Exiting");
}

TensorBoardLog::Position Loop::position() const {
  const RunPosition& at = job_.trainer().position();
  return {at.step, at.consumed_samples, at.consumed_tokens};
}

void Loop::run() {
  const int64_t step = position().step;
  if (config_.data.eval_only) {
    log_.event("start", step, "to evaluate");
    evaluate_sets("valid", "the end of training for val data", When::kDuring);
    evaluate_sets("test", "the end of training for test data", When::kDuring);
    return;
  }
  was_over_ = step >= config_.training.num_steps;
  if (was_over_)
    log_info("nothing is left to train: the checkpoint stands at iteration ", step, " of ", config_.training.num_steps);
  else
    log_.event("start", step, concat("of ", config_.training.num_steps, " steps"));
  log_info("training ...");
  log_info(datetime_line("before the start of training step"));
  train();
}

void Loop::end_by(const std::exception& error) {
  const auto* user = dynamic_cast<const UserError*>(&error);
  if (user != nullptr && user->code() == kNotFinite) saving_.settle();  // of a state before it went wrong
  // What all ranks throw alike the first one notes, and what is but a consequence nobody else.
  const bool only_first = user != nullptr && (user->code() == ExitCode::kLostPeer || user->code() == kNotFinite ||
                                              user->code() == ExitCode::kInputOutput);
  if (config_.checkpoint.save.empty() || (grid_.rank != 0 && only_first)) return;
  record_event(config_.checkpoint.save, "error", position().step,
               concat(grid_.rank == 0 ? "" : concat("rank ", grid_.rank, ": "), error.what()));
}

void Loop::train() {
  if (const auto signal = reason_to_stop(signals_.received())) return stop(*signal);  // it came while the run was built
  while (position().step < config_.training.num_steps) {
    if (skip_steps()) continue;
    train_step();
    const int64_t step = position().step;
    if (config_.data.eval_iters > 0 && step % config_.data.eval_interval == 0)
      evaluate_sets("valid", concat("iteration ", step), When::kDuring);
    if (saving_.due(step)) save();
    if (const auto reason = reason_to_stop(own_reason_to_stop())) return stop(*reason);
  }
  end();
}

void Loop::train_step() {
  const int64_t next = position().step + 1;
  set_awaited(concat("step ", next, " of ", config_.training.num_steps,
                     config_.checkpoint.save.empty() ? "" : ", and its checkpoint"));
  trace_before_step(next);
  const StepReport report = job_.trainer().step();
  trace_after_step(report.step);
  log_.step(report);
  if (report.skipped || report.nan)
    log_.event(
        "alert", report.step,
        concat(report.nan ? "loss is not a number" : "gradient overflow", report.skipped ? "; step skipped" : ""));
  finite_.after_step(report);
  replicas_.after_step();
  saving_.after_step();
}

// The save comes before the evaluations, which read beyond the state that a longer run would go on from.
void Loop::end() {
  log_.flush();
  set_live_line("");
  log_info(datetime_line("after training is done"));
  set_awaited("the last checkpoint, and the evaluations at the end");
  reason_to_stop({});  // hears of a folder that was removed
  save();
  if (config_.data.eval_iters > 0) {
    evaluate_at_end("valid");
    evaluate_at_end("test");
  }
  saving_.save_at_end();
  if (!was_over_) log_.event("end", position().step, "all steps done");
  finite_.at_end();
}

// When the next step is one that is to be skipped: passes over it and those after it.
bool Loop::skip_steps() {
  Trainer& trainer = job_.trainer();
  const int64_t first = trainer.position().step + 1;
  for (const config::StepRange& range : config_.training.skipped_steps) {
    if (first < range.first || first > range.last) continue;
    const int64_t last = std::min(range.last, config_.training.num_steps);
    while (trainer.position().step < last) trainer.skip_step();
    const std::string what = concat("Skipped iterations ", first, " to ", last);
    log_.flush();
    log_info(what, " due to --skip-train-iteration-range flag.");
    log_.event("skip", last, what);
    return true;
  }
  return false;
}

std::optional<std::string> Loop::reason_to_stop(std::optional<std::string> own) {
  if (position().step >= config_.training.num_steps) own.reset();  // it ends anyway
  const std::vector<bool> any = grid_.world.any({own.has_value(), restored_folder()});
  if (any[1]) saving_.forget_saved();
  if (!any[0] || grid_.world.size() == 1) return own;
  for (const std::string& reason : grid_.world.gather_texts(own.value_or("")))
    if (!reason.empty()) return reason;
  return std::nullopt;
}

// Whether the folder of --save had been removed, and is there again.
bool Loop::restored_folder() {
  HeldFolder* const folder = job_.held_folder();
  if (folder == nullptr || !folder->is_gone() || !folder->restore()) return false;
  const std::string what =
      concat("'", config_.checkpoint.save,
             "' was removed while this run used it, or config.toml in it: made again. "
             "Checkpoints and records that were in it are lost; the present state is saved at the next chance.");
  log_warning(what);
  log_.event("alert", position().step, what);
  return true;
}

std::optional<std::string> Loop::own_reason_to_stop() const {
  const int64_t step = position().step;
  if (kill_switch_present(config_)) return kill_switch_reason(config_);
  if (const auto signal = signals_.received()) return concat("received ", *signal, ". Exiting");
  const double minutes = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count() / 60;
  if (config_.training.exit_duration_in_mins && minutes > static_cast<double>(*config_.training.exit_duration_in_mins))
    return concat("exiting program after ", minutes, " minutes");
  if (config_.training.exit_interval && step % *config_.training.exit_interval == 0)
    return concat("exiting program at iteration ", step);
  return std::nullopt;
}

void Loop::stop(const std::string& reason) {
  log_.flush();
  set_live_line("");
  if (config_.checkpoint.save.empty()) log_warning("stopping without a checkpoint: there is no --save");
  set_awaited(concat("the checkpoint of step ", position().step));
  save();
  saving_.save_at_end();
  log_.event("stop", position().step, reason);
  log_info(datetime_line(reason));
}

void Loop::save() {
  replicas_.before_save();
  finite_.before_save();
  saving_.save();
}

void Loop::evaluate_at_end(const std::string& kind) {
  if (has_evaluated_at_end(kind)) return;
  evaluate_sets(kind, kind == "valid" ? "the end of training for val data" : "the end of training for test data",
                When::kAtEnd);
}

// A run that had ended and is started again does not say it all a second time.
bool Loop::has_evaluated_at_end(const std::string& kind) const {
  const bool found = grid_.rank == 0 && !config_.checkpoint.save.empty() &&
                     has_last_evaluation(config_.checkpoint.save, position().step, kind);
  return grid_.world.any(found);
}

void Loop::evaluate_sets(const std::string& kind, const std::string& when, When moment) {
  const bool valid = kind == "valid";
  const std::vector<Loader>& loaders = valid ? job_.valid_loaders() : job_.test_loaders();
  if (loaders.empty()) return;
  set_awaited(concat("the evaluation at ", when));
  RunPosition& run = job_.trainer().position();
  Evaluation what{.first_sample = 0,
                  .num_iterations = config_.data.eval_iters,
                  .num_micro_batches = job_.trainer().num_micro_batches()};  // of one replica
  // Each set goes on where its last evaluation ended, as Megatron's iterators do.
  if (valid) what.first_sample = run.consumed_valid_samples / static_cast<int64_t>(loaders.size());
  std::vector<MetricsFile::SetLosses> sets;
  for (const Loader& loader : loaders) {
    const std::string& name = loader.source().name();
    sets.push_back({name, evaluate(config_, {grid_, job_.runner(), loader}, what, "evaluate " + name)});
    if (valid && moment == When::kDuring)
      run.consumed_valid_samples +=
          what.num_iterations * what.num_micro_batches * config_.training.micro_batch_size * grid_.shape.data;
  }
  log_.evaluation({.kind = kind, .when = when, .at_end = moment == When::kAtEnd}, sets, position());
}

void Loop::trace_before_step(int64_t next_step) {
  if (config_.training.profile_step_start && next_step == *config_.training.profile_step_start + 1) trace_.start();
}

void Loop::trace_after_step(int64_t step) {
  if (!trace_.recording() || step < config_.training.profile_step_end.value_or(step)) return;
  const std::filesystem::path folder = config_.checkpoint.save.empty() ? "." : config_.checkpoint.save;
  const std::string rank = grid_.world.size() > 1 ? concat("_rank_", grid_.rank) : "";
  const std::filesystem::path path = folder / "logs" / concat("trace_step_", step, rank, ".json");
  try {
    trace_.write(path);
  } catch (const std::exception& error) {  // a full disk; the run needs no trace
    return log_warning("no trace of step ", step, ": ", error.what());
  }
  log_info("wrote ", path.string(), ": open it at ui.perfetto.dev or in chrome://tracing");
}

}  // namespace

void run(const config::RunConfig& config, const OptionTable& table, const std::string& command_line,
         const dist::Grid& grid) {
  if (grid.world.any(kill_switch_present(config))) {
    log_info(datetime_line(kill_switch_reason(config)));
    return;
  }
  if (config.checkpoint.save.empty() && !config.data.eval_only)
    log_warning("there is no --save: what is learnt is lost when the run ends");
  const StopSignals signals;
  set_awaited("tokenizer, data and model, before the first step");
  Loop loop(config, table, grid);
  loop.keep_folder(command_line);
  try {
    loop.run();
  } catch (const std::exception& error) {
    loop.end_by(error);
    throw;
  }
}

}  // namespace espalier::train
