#include "train/run.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "train/evaluate.h"
#include "train/job.h"
#include "train/replica_check.h"
#include "train/run_log.h"
#include "train/signals.h"
#include "train/step_trace.h"

namespace espalier::train {
namespace {

class Loop {
 public:
  Loop(const plan::RunConfig& config, const OptionTable& table, const dist::Grid& grid)
      : grid_(grid),
        job_(config, table, grid),
        config_(job_.config()),
        log_(config_, table, job_.trainer().position().step, grid.rank == 0),
        replicas_(job_, log_) {}

  void run();

 private:
  void train();
  bool skip_steps();
  // Why the run has to stop behind this step, if it has to: on this rank, and on any of them (the first that has a
  // reason).
  std::optional<std::string> own_reason_to_stop() const;
  std::optional<std::string> reason_to_stop() const;
  void stop(const std::string& reason);
  void save();
  void evaluate_sets(const std::string& kind, const std::string& when);
  void trace_before_step(int64_t next_step);
  void trace_after_step(int64_t step);
  TensorBoardLog::Position position() const;

  StopSignals signals_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const dist::Grid& grid_;
  Job job_;
  const plan::RunConfig& config_;
  RunLog log_;
  ReplicaCheck replicas_;
  StepTrace trace_;
};

bool kill_switch_present(const plan::RunConfig& config) {
  return !config.training.kill_switch_path.empty() && std::filesystem::exists(config.training.kill_switch_path);
}

std::string kill_switch_reason(const plan::RunConfig& config) {
  return concat("Detected kill switch at ", config.training.kill_switch_path, ". Exiting");
}

bool on_any_rank(const dist::Grid& grid, bool here) {
  if (grid.world.size() == 1) return here;
  const at::Tensor any = at::full({1}, here ? 1 : 0, at::kInt);
  grid.world.all_reduce_max(any);
  return any.item<int>() != 0;
}

TensorBoardLog::Position Loop::position() const {
  const RunPosition& at = job_.trainer().position();
  return {at.step, at.consumed_samples, at.consumed_tokens};
}

void Loop::run() {
  log_.event("start", job_.trainer().position().step, concat("of ", config_.training.num_steps, " steps"));
  if (config_.data.eval_only) {
    evaluate_sets("valid", "the end of training for val data");
    evaluate_sets("test", "the end of training for test data");
    return;
  }
  const int64_t steps_left = config_.training.num_steps - job_.trainer().position().step;
  if (steps_left <= 0)
    log_info("nothing is left to train: the checkpoint stands at iteration ", job_.trainer().position().step, " of ",
             config_.training.num_steps);
  log_info("training ...");
  log_info(datetime_line("before the start of training step"));
  train();
}

void Loop::train() {
  Trainer& trainer = job_.trainer();
  while (trainer.position().step < config_.training.num_steps) {
    if (skip_steps()) continue;
    trace_before_step(trainer.position().step + 1);
    const StepReport report = trainer.step();
    trace_after_step(report.step);
    log_.step(report);
    if (report.skipped || report.nan)
      log_.event(
          "alert", report.step,
          concat(report.nan ? "loss is not a number" : "gradient overflow", report.skipped ? "; step skipped" : ""));
    replicas_.after_step();
    job_.check_saving();
    if (config_.data.eval_iters > 0 && report.step % config_.data.eval_interval == 0)
      evaluate_sets("valid", concat("iteration ", report.step));
    if (config_.checkpoint.save_interval && report.step % *config_.checkpoint.save_interval == 0) save();
    if (const auto reason = reason_to_stop()) return stop(*reason);
  }
  log_.flush();
  set_live_line("");
  log_info(datetime_line("after training is done"));
  if (config_.data.eval_iters > 0) evaluate_sets("valid", "the end of training for val data");
  save();
  if (config_.data.eval_iters > 0) evaluate_sets("test", "the end of training for test data");
  job_.finish_saving();
  log_.event("end", trainer.position().step, "all steps done");
}

// When the next step is one that is to be skipped: passes over it and those behind it.
bool Loop::skip_steps() {
  Trainer& trainer = job_.trainer();
  const int64_t first = trainer.position().step + 1;
  for (const plan::StepRange& range : config_.training.skipped_steps) {
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

std::optional<std::string> Loop::reason_to_stop() const {
  if (position().step >= config_.training.num_steps) return std::nullopt;
  const std::optional<std::string> own = own_reason_to_stop();
  if (!on_any_rank(grid_, own.has_value())) return std::nullopt;
  if (grid_.world.size() == 1) return own;
  for (const std::string& reason : grid_.world.gather_texts(own.value_or("")))
    if (!reason.empty()) return reason;
  return std::nullopt;
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
  save();
  job_.finish_saving();
  log_.event("stop", position().step, reason);
  log_info(datetime_line(reason));
}

void Loop::save() {
  replicas_.before_save();
  job_.save();
}

void Loop::evaluate_sets(const std::string& kind, const std::string& when) {
  const bool valid = kind == "valid";
  const std::vector<Loader>& loaders = valid ? job_.valid_loaders() : job_.test_loaders();
  if (loaders.empty()) return;
  RunPosition& run = job_.trainer().position();
  Evaluation what{.first_sample = 0,
                  .num_iterations = config_.data.eval_iters,
                  .num_micro_batches = job_.trainer().num_micro_batches()};  // of one replica
  // Each set goes on where its last evaluation ended, as Megatron's iterators do.
  if (valid) what.first_sample = run.consumed_valid_samples / static_cast<int64_t>(loaders.size());
  std::vector<MetricsFile::SetLosses> sets;
  for (const Loader& loader : loaders) {
    const std::string& name = loader.dataset().name();
    sets.push_back({name, evaluate(config_, {grid_, job_.runner(), loader}, what, "evaluate " + name)});
    if (valid)
      run.consumed_valid_samples +=
          what.num_iterations * what.num_micro_batches * config_.training.micro_batch_size * grid_.shape.data;
  }
  log_.evaluation(kind, when, sets, position());
}

void Loop::trace_before_step(int64_t next_step) {
  if (config_.training.profile_step_start && next_step == *config_.training.profile_step_start + 1) trace_.start();
}

void Loop::trace_after_step(int64_t step) {
  if (!trace_.recording() || step < config_.training.profile_step_end.value_or(step)) return;
  const std::filesystem::path folder = config_.checkpoint.save.empty() ? "." : config_.checkpoint.save;
  const std::string rank = grid_.world.size() > 1 ? concat("_rank_", grid_.rank) : "";
  const std::filesystem::path path = folder / "logs" / concat("trace_step_", step, rank, ".json");
  trace_.write(path);
  log_info("wrote ", path.string(), ": open it at ui.perfetto.dev or in chrome://tracing");
}

}  // namespace

void run(const plan::RunConfig& config, const OptionTable& table, const std::string& command_line,
         const dist::Grid& grid) {
  if (on_any_rank(grid, kill_switch_present(config))) {
    log_info(datetime_line(kill_switch_reason(config)));
    return;
  }
  if (config.checkpoint.save.empty() && !config.data.eval_only)
    log_warning("there is no --save: what is learnt is lost when the run ends");
  Loop loop(config, table, grid);
  if (!config.checkpoint.save.empty() && grid.rank == 0) {
    const std::filesystem::path folder = config.checkpoint.save;
    write_file_atomically(folder / "config.toml", table.to_toml());
    write_file_atomically(folder / "command.txt", command_line + "\n");
  }
  loop.run();
}

}  // namespace espalier::train
