#include "train/retention.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "base/stop_signals.h"
#include "base/whereabouts.h"
#include "report/events.h"
#include "store/prune.h"
#include "store/run_folder.h"

namespace espalier::train {
namespace {

namespace fs = std::filesystem;

constexpr auto kLookAtPruning = std::chrono::milliseconds(50);

std::string in_words(const std::vector<int64_t>& steps) {
  std::vector<std::string> words;
  for (const int64_t step : steps) words.push_back(std::to_string(step));
  return concat(steps.size() == 1 ? "step " : "steps ", join(words, ", "));
}

}  // namespace

Retention::Retention(Job& job, report::RunLog& log, std::function<std::vector<int64_t>()> in_use)
    : job_(job), log_(log), in_use_(std::move(in_use)) {}

bool Retention::is_on() const {
  const config::CheckpointConfig& checkpoint = job_.config().checkpoint;
  return job_.grid().rank == 0 &&
         (checkpoint.save_keep_last || checkpoint.save_keep_every || checkpoint.save_keep_epochs);
}

fs::path Retention::file(const char* ending) const {
  return fs::path(job_.config().checkpoint.save) / concat(".removing_checkpoints", ending);
}

void Retention::note_failure(const std::string& why) {
  const std::string what = concat("older checkpoints were not removed: ", why);
  log_warning(what);
  log_.event("prune failed", *done_for_, what);
}

void Retention::start() {
  const config::CheckpointConfig& checkpoint = job_.config().checkpoint;
  const store::PruneRule rule{.keep_last = checkpoint.save_keep_last.value_or(1),
                              .keep_every = checkpoint.save_keep_every.value_or(0),
                              .keep = kept_back_,
                              .up_to = done_for_};
  try {
    going_.clear();
    for (const store::StepEntry& entry : store::plan_prune(store::list_steps(checkpoint.save), rule).remove)
      going_.push_back(entry.step);
    if (going_.empty()) return;
    std::vector<std::string> words = {"checkpoint",
                                      "prune",
                                      checkpoint.save,
                                      "--keep-last",
                                      std::to_string(rule.keep_last),
                                      "--keep-every",
                                      std::to_string(rule.keep_every),
                                      "--up-to",  // what is saved meanwhile may be in use
                                      std::to_string(*done_for_),
                                      "--keep-spikes",
                                      "--verify",
                                      "newest",
                                      "--workers",
                                      "1",
                                      "--yes"};
    if (checkpoint.save_keep_epochs) words.push_back("--keep-epochs");
    if (!kept_back_.empty()) words.push_back("--keep");
    for (const int64_t step : kept_back_) words.push_back(std::to_string(step));
    program_.start(std::move(words), file(".out"), file(".log"));
  } catch (const std::exception& error) {  // of the file system, or of a program that cannot be started
    note_failure(error.what());
  }
}

void Retention::poll() {
  if (const auto code = program_.take_exit_code()) {
    std::error_code ignored;
    fs::remove(file(".out"), ignored);
    if (*code == 0) {
      fs::remove(file(".log"), ignored);
      std::erase_if(going_, [&](int64_t step) {  // those around spikes and at ends of epochs stay
        return fs::exists(fs::path(job_.config().checkpoint.save) / store::step_folder_name(step), ignored);
      });
      if (!going_.empty()) {
        log_info("  read and verified the checkpoint at iteration ", *done_for_, "; removed that of ",
                 in_words(going_));
        log_.event("checkpoints removed", *done_for_, in_words(going_));
      }
    } else {
      note_failure(concat("espalier checkpoint prune ended with code ", *code, "; see ", file(".log").string()));
    }
  }
  // Which checkpoints are at spikes and at ends of epochs, events.jsonl says. Other events may wait for the very room
  // that is made here.
  if (program_.is_running() || report::has_late_event(job_.config().checkpoint.save, {"epoch", "spike"})) return;
  const auto newest = job_.newest_saved();
  std::vector<int64_t> kept_back = in_use_();
  if (!newest || (newest == done_for_ && kept_back == kept_back_)) return;
  done_for_ = newest;
  kept_back_ = std::move(kept_back);
  start();
}

void Retention::after_step(const report::StepReport&) {
  if (is_on()) poll();
}

void Retention::at_end() {
  if (!is_on()) return;
  const StopSignals signals;
  set_awaited("older checkpoints, which are being removed; the last one is saved");
  const WaitsFor waits(Waiting::kOthers, "the removal of older checkpoints", "--save-keep-last");
  for (poll(); program_.is_running() && !signals.received(); poll()) std::this_thread::sleep_for(kLookAtPruning);
}

}  // namespace espalier::train
