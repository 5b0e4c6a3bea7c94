#include "train/run.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/stop_signals.h"
#include "base/whereabouts.h"
#include "launch/environment.h"
#include "launch/hold.h"
#include "launch/snapshot_memory.h"
#include "report/events.h"
#include "report/run_log.h"
#include "store/run_folder.h"
#include "train/epoch_ends.h"
#include "train/evaluations.h"
#include "train/finite_check.h"
#include "train/hf_folders.h"
#include "train/job.h"
#include "train/replica_check.h"
#include "train/retention.h"
#include "train/retrieval_metrics.h"
#include "train/saving.h"
#include "train/spike_record.h"
#include "train/step_trace.h"
#include "train/stragglers.h"
#include "train/task_evaluations.h"
#include "train/task_metrics.h"

namespace espalier::train {
namespace {

// Steps to the log, to the records of the run, and to TensorBoard.
class Reporting : public Observer {
 public:
  explicit Reporting(report::RunLog& log) : log_(log) {}
  void after_step(const report::StepReport& report) override {
    log_.step(report);
    if (!report.objection.empty()) {
      const std::string what = concat("update of step ", report.step, " not made: ", report.objection, "; samples ",
                                      report.consumed_samples - report.global_batch_size, " to ",
                                      report.consumed_samples - 1, " of the run");
      log_info(what);
      log_.event("skip", report.step, what);
    } else if (report.nan) {
      log_.event("alert", report.step, concat("loss is not a number", report.skipped ? "; step skipped" : ""));
    } else if (report.skipped) {
      log_.event("overflow", report.step, "gradient overflow; step skipped");
    }
    num_overflows_ = report.skipped && !report.nan && report.objection.empty() ? num_overflows_ + 1 : 0;
    if (num_overflows_ == kMostOverflows)
      log_.event("alert", report.step,
                 concat("the last ", kMostOverflows, " steps were skipped because their gradients overflowed"));
  }

 private:
  // By overflows fp16 finds its loss scale: from 2^32, the default, to 1 there are 33 in a row.
  static constexpr int64_t kMostOverflows = 64;
  int64_t num_overflows_ = 0;  // in a row
  report::RunLog& log_;
};

using Clock = std::chrono::steady_clock;

constexpr auto kBetweenQuestions = std::chrono::milliseconds(200);  // of ranks that pause

// After as many roll-backs to one checkpoint the data are not what causes its spikes.
constexpr int64_t kMostRollBacks = 3;

// Thrown on all ranks: the run goes on from the checkpoint of step `to` and passes over the steps up to `spike`.
struct RollBack {
  int64_t to = 0, spike = 0;
};

class Loop {
 public:
  Loop(Job& job, const OptionTable& table, Clock::time_point start, std::unique_ptr<Observer> first)
      : start_(start),
        job_(job),
        grid_(job.grid()),
        config_(job.config()),
        log_(config_.logging, config_.checkpoint.save, table, grid_.shape.num_ranks(), job.trainer().position().step,
             grid_.rank == 0),
        tracing_(config_, grid_),
        stragglers_(grid_, log_),
        reporting_(log_),
        spikes_(job_, log_, [this](const report::StepReport& report) { follow_policy(report); }),
        finite_(job_, log_, spikes_),
        replicas_(job_, log_),
        epoch_ends_(job_, log_),
        saving_(job_, log_),
        evaluations_(job_, log_),
        tasks_(job_, log_),
        hf_folders_(job_, log_),
        retention_(job_, log_, [this] { return steps_in_use(); }),
        task_metrics_(job_, log_),
        retrieval_metrics_(job_, log_),
        first_(std::move(first)) {
    if (first_) observers_.insert(observers_.begin(), first_.get());
  }

  void run();
  // What is still to be done when the run ends by this error.
  void end_by(const std::exception& error);

 private:
  void train();
  void train_step();
  // Why the run has to stop there.
  std::optional<std::string> before_first_step();
  std::optional<std::string> between_steps();
  void end();
  bool skip_steps();
  // --spike-policy, after a spike.
  void follow_policy(const report::StepReport& report);
  void roll_back(int64_t spike);
  // Why the run has to stop after this step, if it has to: on this rank, and on any of them (the first that has a
  // reason).
  std::optional<std::string> own_reason_to_stop() const;
  // Of those the ones that do not come from what was trained.
  std::optional<std::string> reason_from_outside() const;
  std::optional<std::string> reason_to_stop(std::optional<std::string> own);
  bool restored_folder();
  // Saves and pauses, as espalier ctl asks of the first rank. What has come meanwhile to stop the run.
  std::optional<std::string> heed_wishes();
  std::optional<std::string> pause();
  void save_as_wished();
  void stop(const std::string& reason);
  void save();
  report::TensorBoardLog::Position position() const;
  // Of checkpoints that programs alongside the run read.
  std::vector<int64_t> steps_in_use() const;

  const StopSignals signals_;
  const Clock::time_point start_;
  Job& job_;
  const dist::Grid& grid_;
  const config::RunConfig& config_;
  report::RunLog log_;
  Tracing tracing_;
  Stragglers stragglers_;
  Reporting reporting_;
  SpikeRecord spikes_;
  FiniteCheck finite_;
  ReplicaCheck replicas_;
  EpochEnds epoch_ends_;
  Saving saving_;
  Evaluations evaluations_;
  TaskEvaluations tasks_;
  HfFolders hf_folders_;
  Retention retention_;
  TaskMetrics task_metrics_;
  RetrievalMetrics retrieval_metrics_;
  const std::unique_ptr<Observer> first_;  // of the caller; may be null
  // In the order in which they see a step: what ends a run comes before what saves it.
  std::vector<Observer*> observers_ = {&tracing_,    &stragglers_, &reporting_,    &spikes_,           &finite_,
                                       &replicas_,   &epoch_ends_, &saving_,       &evaluations_,      &tasks_,
                                       &hf_folders_, &retention_,  &task_metrics_, &retrieval_metrics_};
  struct Wished {  // of any rank, at the last question for reasons to stop
    bool save = false, pause = false;
  };
  Wished wished_;
  uint32_t num_saves_heeded_ = 0;
  std::optional<std::string> spike_to_stop_at_;
  bool was_over_ = false;  // nothing was left to train when this run began
};

bool kill_switch_present(const config::RunConfig& config) {
  return !config.training.kill_switch_path.empty() && std::filesystem::exists(config.training.kill_switch_path);
}

std::string kill_switch_reason(const config::RunConfig& config) {
  return concat("Detected kill switch at ", config.training.kill_switch_path, ". Exiting");
}

void say_nothing_trained(const config::RunConfig& config) {
  log_warning("nothing was trained: remove '", config.training.kill_switch_path, "' to train");
}

// Of steps of which there may be no checkpoint yet: of this rank, or another, by the processes before.
bool are_copies_left(const config::RunConfig& config) {
  if (!config.checkpoint.non_persistent_save_interval || config.data.eval_only) return false;
  for (const launch::SlotsOf whose : {launch::SlotsOf::kRank, launch::SlotsOf::kPeer}) {
    const launch::SnapshotSlots* const slots = launch::snapshot_slots(whose);
    if (slots != nullptr && slots->hold_any()) return true;
  }
  return false;
}

report::TensorBoardLog::Position Loop::position() const {
  const RunPosition& at = job_.trainer().position();
  return {at.step, at.consumed_samples, at.consumed_tokens};
}

std::vector<int64_t> Loop::steps_in_use() const {
  std::vector<int64_t> steps = hf_folders_.steps_in_use();
  for (const int64_t step : tasks_.steps_in_use()) steps.push_back(step);
  return steps;
}

void Loop::run() {
  const int64_t step = position().step;
  if (config_.data.eval_only) {
    log_.event("start", step, "to evaluate");
    if (!task_metrics_.alone() && !retrieval_metrics_.alone()) evaluations_.alone();
    return;
  }
  was_over_ = step >= config_.training.num_steps && !job_.is_from_memory();
  if (was_over_)
    log_info("nothing is left to train: the checkpoint is at iteration ", step, " of ", config_.training.num_steps);
  else
    log_.event("start", step,
               concat("of ", config_.training.num_steps, " steps, in layout ", spec::to_string(grid_.shape)));
  log_info("training ...");
  log_info(report::datetime_line("before the start of training step"));
  train();
}

void Loop::end_by(const std::exception& error) {
  const auto* user = dynamic_cast<const UserError*>(&error);
  if (user != nullptr && user->code() == ExitCode::kLostPeer && launch::may_be_held()) return;  // it does not end
  if (user != nullptr && user->code() == kNotFinite) saving_.settle();  // of a state before it went wrong
  // What all ranks throw alike the first one notes, and what is but a consequence nobody else.
  const bool only_first = user != nullptr && (user->code() == ExitCode::kLostPeer || user->code() == kNotFinite ||
                                              user->code() == ExitCode::kInputOutput);
  if (config_.checkpoint.save.empty() || (grid_.rank != 0 && only_first)) return;
  report::record_event(config_.checkpoint.save, "error", position().step,
                       concat(grid_.rank == 0 ? "" : concat("rank ", grid_.rank, ": "), error.what()));
}

void Loop::train() {
  if (const auto reason = job_.is_from_memory() ? between_steps() : before_first_step()) return stop(*reason);
  while (position().step < config_.training.num_steps) {
    if (skip_steps()) continue;
    train_step();
    if (finite_.is_sound()) job_.keep_in_memory();
    if (const auto reason = between_steps()) return stop(*reason);
  }
  end();
}

// What came while the run was built.
std::optional<std::string> Loop::before_first_step() {
  if (const auto reason = reason_to_stop(reason_from_outside())) {
    if (kill_switch_present(config_)) say_nothing_trained(config_);
    return reason;
  }
  return heed_wishes();
}

// All that is not yet done of a step whose state was kept in memory.
std::optional<std::string> Loop::between_steps() {
  if (saving_.due(position().step)) save();
  if (const auto reason = reason_to_stop(own_reason_to_stop())) return reason;
  return heed_wishes();
}

void Loop::train_step() {
  const int64_t next = position().step + 1;
  set_awaited(concat("step ", next, " of ", config_.training.num_steps,
                     config_.checkpoint.save.empty() ? "" : ", and its checkpoint"));
  set_phase(RunPhase::kTrain, next);
  for (Observer* observer : observers_) observer->before_step(next);
  const report::StepReport report = job_.trainer().step();
  job_.settle_copies();  // before anybody records it
  for (Observer* observer : observers_) observer->after_step(report);
}

// The save comes before the evaluations, which read beyond the state that a longer run would continue from.
void Loop::end() {
  log_.flush();
  set_live_line("");
  log_info(report::datetime_line("after training is done"));
  set_awaited("the last checkpoint, and the evaluations at the end");
  reason_to_stop({});  // hears of a folder that was removed
  finite_.before_end();
  save();
  evaluations_.after_training();
  saving_.save_at_end();
  if (!was_over_) log_.event("end", position().step, "all steps done");
  set_phase(RunPhase::kExit, position().step);
  for (Observer* observer : observers_) observer->at_end();
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

void Loop::follow_policy(const report::StepReport& report) {
  const config::SpikePolicy policy = config_.training.spike_policy;
  if (policy == config::SpikePolicy::kRollBack) roll_back(report.step);
  if (policy == config::SpikePolicy::kStop)
    spike_to_stop_at_ = concat("step ", report.step, " is a spike (",
                               report.objection.empty() ? "its loss is not finite" : report.objection,
                               "), and --spike-policy is stop. Exiting");
}

void Loop::roll_back(int64_t spike) {
  saving_.settle();  // what is still being written counts
  std::string newest;
  if (grid_.rank == 0)
    for (const store::StepEntry& entry : store::list_steps(config_.checkpoint.save).complete)
      if (entry.step < spike) newest = std::to_string(entry.step);
  newest = grid_.world.gather_texts(newest)[0];
  log_.flush();
  if (newest.empty()) {
    const std::string what = concat("step ", spike, " is a spike, and there is no checkpoint to go back to");
    log_warning(what);
    log_.event("alert", spike, what);
    return;
  }
  const int64_t to = std::stoll(newest);
  const auto& skipped = config_.training.skipped_steps;
  const auto tried =
      std::count_if(skipped.begin(), skipped.end(), [&](const auto& range) { return range.first == to + 1; });
  if (tried >= kMostRollBacks)
    throw UserError(concat("step ", spike, " is a spike after the run went back to step ", to, " ", tried,
                           " times: the data in between are not its cause. Continue from an earlier checkpoint "
                           "(--ckpt-step), with a smaller --lr, or with --spike-policy skip"),
                    kNotFinite);
  const std::string what = concat("step ", spike, " is a spike: the run goes back to the checkpoint of step ", to,
                                  " and passes over steps ", to + 1, " to ", spike);
  log_warning(what);
  log_.event("roll back", spike, what);
  job_.forget_copies();
  throw RollBack{to, spike};
}

std::optional<std::string> Loop::reason_to_stop(std::optional<std::string> own) {
  if (position().step >= config_.training.num_steps) own.reset();  // it ends anyway
  const Wishes here = wishes();
  const std::vector<bool> any =
      grid_.world.any({own.has_value(), restored_folder(), here.num_saves != num_saves_heeded_, here.pause});
  if (any[1]) saving_.forget_saved();
  wished_ = {.save = any[2], .pause = any[3]};
  num_saves_heeded_ = here.num_saves;
  if (!any[0] || grid_.world.size() == 1) return own;
  for (const std::string& reason : grid_.world.gather_texts(own.value_or("")))
    if (!reason.empty()) return reason;
  return std::nullopt;
}

void Loop::save_as_wished() {
  log_.event("save", position().step, "as espalier ctl asked");
  save();
}

std::optional<std::string> Loop::heed_wishes() {
  if (const auto level = wishes().log_level) set_log_level(*level);
  if (wished_.save) save_as_wished();
  return wished_.pause ? pause() : std::nullopt;
}

// The ranks ask one another again and again, so that no exchange waits for longer than that.
std::optional<std::string> Loop::pause() {
  log_.flush();
  log_info("paused after step ", position().step, ", as espalier ctl asked, until espalier ctl resume");
  log_.event("pause", position().step, "");
  set_awaited("the run is paused; the checkpoint");
  const WaitsFor waits(Waiting::kOthers, "pause", "the run");
  std::optional<std::string> reason;
  while (wished_.pause && !reason) {
    std::this_thread::sleep_for(kBetweenQuestions);
    reason = reason_to_stop(own_reason_to_stop());
    if (wished_.save && !reason) save_as_wished();
  }
  if (!reason) log_info("continues with step ", position().step + 1);
  log_.event("resume", position().step, reason.value_or(""));
  return reason;
}

// Whether the folder of --save had been removed, and exists again.
bool Loop::restored_folder() {
  HeldFolder* const folder = job_.held_folder();
  if (folder == nullptr || !folder->is_gone() || !folder->restore()) return false;
  const std::string what =
      concat("'", config_.checkpoint.save,
             "' was removed while this run used it, or config.toml in it: recreated. Checkpoints and records that were "
             "in it are lost; the present state is saved at the next opportunity.");
  log_warning(what);
  log_.event("alert", position().step, what);
  return true;
}

std::optional<std::string> Loop::reason_from_outside() const {
  if (kill_switch_present(config_)) return kill_switch_reason(config_);
  if (const auto signal = signals_.received()) return concat("received ", *signal, ". Exiting");
  const double minutes = std::chrono::duration<double>(Clock::now() - start_).count() / 60;
  if (config_.training.exit_duration_in_mins && minutes > static_cast<double>(*config_.training.exit_duration_in_mins))
    return concat("exiting program after ", minutes, " minutes");
  return std::nullopt;
}

std::optional<std::string> Loop::own_reason_to_stop() const {
  if (const auto reason = reason_from_outside()) return reason;
  if (spike_to_stop_at_) return spike_to_stop_at_;
  const int64_t step = position().step;
  if (config_.training.exit_interval && step % *config_.training.exit_interval == 0)
    return concat("exiting program at iteration ", step);
  return std::nullopt;
}

void Loop::stop(const std::string& reason) {
  log_.flush();
  set_live_line("");
  if (config_.checkpoint.save.empty()) log_warning("stopping without a checkpoint: there is no --save");
  set_awaited(concat("the checkpoint of step ", position().step));
  finite_.before_end();
  save();
  saving_.save_at_end();
  log_.event("stop", position().step, reason);
  log_info(report::datetime_line(reason));
}

void Loop::save() {
  if (!finite_.is_sound()) return saving_.put_off();
  set_phase(RunPhase::kSave, position().step);
  // The other way round: a rank that differs from its copies is named, or repaired, before its numbers are used.
  for (auto observer = observers_.rbegin(); observer != observers_.rend(); ++observer) (*observer)->before_save();
  saving_.save();
}

}  // namespace

void run(config::RunConfig& config, const OptionTable& table, const std::string& command_line, const dist::Grid& grid,
         const MakeObserver& make_first) {
  const std::vector<bool> any = grid.world.any({kill_switch_present(config), are_copies_left(config)});
  if (any[0] && !any[1]) {  // else the run is built, so that the steps in memory are saved before it ends
    log_info(report::datetime_line(kill_switch_reason(config)));
    return say_nothing_trained(config);
  }
  if (config.checkpoint.save.empty() && !config.data.eval_only)
    log_warning("there is no --save: what is learnt is lost when the run ends");
  const StopSignals signals;
  const Clock::time_point start = launch::launched_at().value_or(Clock::now());
  std::optional<int64_t> dropped_moments_at;
  while (true) {
    set_awaited("tokenizer, data and model, before the first step");
    set_phase(RunPhase::kLoad, 0);
    Job job(config, table, grid);
    if (job.dropped_moments_at()) dropped_moments_at = job.dropped_moments_at();
    // The run is one from here on: its folder stays, and records are written into it.
    note_run_folder(config.checkpoint.save);
    if (job.held_folder() != nullptr) job.held_folder()->keep(job.resolved_options(), command_line + "\n");
    Loop loop(job, table, start, make_first ? make_first(job) : nullptr);
    try {
      return loop.run();
    } catch (const RollBack& back) {
      config.checkpoint.rolled_back_to = back.to;
      config.checkpoint.finetune = false;
      config.checkpoint.no_load_optim = dropped_moments_at == back.to;  // its own checkpoints count whole
      config.training.skipped_steps.push_back({back.to + 1, back.spike});
      config.training.skip_train_iteration_range.push_back(concat(back.to + 1, "-", back.spike));
    } catch (const std::exception& error) {
      loop.end_by(error);
      throw;
    }
  }
}

}  // namespace espalier::train
