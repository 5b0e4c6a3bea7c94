#include "train/saving.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/log.h"

namespace espalier::train {
namespace {

constexpr int kTriesAtEnd = 3;
constexpr auto kPauseBetweenTries = std::chrono::seconds(2);
constexpr auto kLongestPause = std::chrono::milliseconds(200);

}  // namespace

void Saving::note_failure(const std::string& reason) {
  const int64_t step = job_.trainer().position().step;
  failure_ = reason;
  log_warning("NOT SAVED: ", reason, "\nThe run continues, and saves again at the next opportunity.");
  log_.event("save failed", step, reason);
}

Saving::Saving(Job& job, report::RunLog& log) : job_(job), log_(log) {
  const int64_t step = job.trainer().position().step;
  if (!job.is_from_memory() || job.config().checkpoint.save.empty()) return;
  const int64_t due = last_due(step);
  if (due == step || due <= job.newest_before()) return;
  log_info("the save that was due at iteration ", due, " did not come to its end: iteration ", step, " is saved");
  retry_step_ = step;
}

// The step, up to this one, at which a save was due last; 0: none.
int64_t Saving::last_due(int64_t step) const {
  int64_t last = 0;
  for (const int64_t interval :
       {job_.config().checkpoint.save_interval.value_or(0), job_.config().training.steps_per_epoch})
    if (interval > 0) last = std::max(last, step - step % interval);
  return last;
}

// What the thread that writes has to tell on this rank.
void Saving::hear() {
  try {
    job_.check_saving();
  } catch (const UserError& error) {
    if (error.code() == ExitCode::kLostPeer) throw;
    note_failure(error.what());
  }
}

void Saving::agree_on_failure() {
  if (!job_.grid().world.any(failure_.has_value())) return;
  const int64_t step = job_.trainer().position().step;
  if (!failure_) failure_ = "another rank could not write its part";
  job_.forget_saved();
  const int64_t interval = job_.config().checkpoint.save_interval.value_or(0);
  if (interval > 0) retry_step_ = step + std::max<int64_t>(1, interval / 10);
}

void Saving::after_step(const report::StepReport&) {
  if (!writing_) return;
  hear();
  writing_ = job_.grid().world.any(job_.is_saving());
  if (!writing_) agree_on_failure();
}

bool Saving::due(int64_t step) const {
  return (step > 0 && last_due(step) == step) || (retry_step_ && step >= *retry_step_);
}

void Saving::settle() {
  if (!writing_) return;
  auto pause = std::chrono::milliseconds(1);
  for (hear(); job_.grid().world.any(job_.is_saving()); hear()) {
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(kLongestPause));
  }
  writing_ = false;
  agree_on_failure();
}

void Saving::save() {
  settle();
  retry_step_.reset();
  failure_.reset();
  try {
    job_.save();
    writing_ = true;
  } catch (const UserError& error) {  // on all ranks
    if (error.code() == ExitCode::kLostPeer) throw;
    note_failure(error.what());
    agree_on_failure();
  }
}

void Saving::put_off() {
  if (job_.config().checkpoint.save.empty()) return;
  const int64_t step = job_.trainer().position().step;
  if (retry_step_ != step) {  // else it is due because it was put off
    const std::string what = concat("the checkpoint of step ", step, " waits for a step with finite loss and norm");
    log_warning(what);
    log_.event("save put off", step, what);
  }
  retry_step_ = step + 1;
}

void Saving::save_at_end() {
  for (int tries = 0; tries < kTriesAtEnd; ++tries) {
    if (tries > 0) std::this_thread::sleep_for(kPauseBetweenTries);
    save();
    settle();
    if (!failure_) return;
  }
  const auto newest = job_.newest_saved();
  const int64_t step = job_.trainer().position().step;
  throw UserError(concat("the last save failed: ", *failure_, "\n",
                         newest ? concat("The newest checkpoint of this run is that of step ", *newest, ": ",
                                         step - *newest, " steps are lost.")
                                : concat("This run has saved nothing: all ", step, " steps are lost.")),
                  ExitCode::kInputOutput);
}

void Saving::forget_saved() {
  job_.forget_saved(/*all=*/true);
  retry_step_ = job_.trainer().position().step;
}

}  // namespace espalier::train
