#include "train/hf_folders.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/stop_signals.h"
#include "base/whereabouts.h"
#include "store/run_folder.h"

namespace espalier::train {
namespace {

namespace fs = std::filesystem;

constexpr auto kLookAtExport = std::chrono::milliseconds(50);

}  // namespace

HfFolders::HfFolders(Job& job, report::RunLog& log)
    : job_(job), log_(log), folder_(fs::path(job.config().checkpoint.save) / "hf") {
  if (!is_on()) return;
  set_aside_later_ones();
  hear_of_saves();
}

bool HfFolders::is_on() const { return job_.grid().rank == 0 && job_.config().checkpoint.save_hf; }

void HfFolders::set_aside_later_ones() const {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    const auto step = store::step_of_folder(entry.path().filename().string());
    if (!step || *step <= job_.trainer().position().step) continue;
    const fs::path aside = entry.path().string() + ".superseded";
    fs::remove_all(aside, error);
    fs::rename(entry.path(), aside, error);
    if (error) log_warning("cannot rename ", entry.path().string(), ", made by an attempt that this run goes back on");
  }
}

void HfFolders::add(int64_t step) {
  if (step > 0 && !fs::exists(folder_ / store::step_folder_name(step)) && asked_.insert(step).second)
    steps_.push_back(step);
}

// Several may have ended since the last look.
void HfFolders::hear_of_saves() {
  const auto newest = job_.newest_saved();
  if (!newest || newest == heard_) return;
  heard_ = newest;
  for (const store::StepEntry& entry : store::list_steps(job_.config().checkpoint.save).complete)
    if (entry.step <= *newest && entry.step % *job_.config().checkpoint.save_hf == 0) add(entry.step);
}

void HfFolders::note_failure(const std::string& why) {
  const std::string what = concat("the Hugging Face folder of step ", steps_.front(), " was not made: ", why);
  log_warning(what);
  log_.event("hf folder failed", steps_.front(), what);
}

void HfFolders::start() {
  const std::string name = store::step_folder_name(steps_.front());
  try {
    fs::create_directories(folder_);
    program_.start({"checkpoint", "export-hf", "--load", fs::path(job_.config().checkpoint.save) / name, "--output",
                    folder_ / name, "--no-check-logits"},
                   folder_ / (name + ".out"), folder_ / (name + ".log"));
  } catch (const std::exception& error) {  // of the file system, or of a program that cannot be started
    note_failure(error.what());
    steps_.pop_front();
  }
}

void HfFolders::poll() {
  if (const auto code = program_.take_exit_code()) {
    const std::string name = store::step_folder_name(steps_.front());
    const fs::path log = folder_ / (name + ".log");
    std::error_code error;
    fs::remove(folder_ / (name + ".out"), error);  // without --json nothing is printed
    if (*code == 0) {
      fs::remove(log, error);
      log_info("  made ", (folder_ / name).string(), " of the checkpoint at iteration ", steps_.front());
      log_.event("hf folder", steps_.front(), (folder_ / name).string());
    } else {
      note_failure(concat("espalier checkpoint export-hf ended with code ", *code, "; see ", log.string()));
    }
    steps_.pop_front();
  }
  if (!program_.is_running() && !steps_.empty()) start();
}

void HfFolders::after_step(const report::StepReport&) {
  if (!is_on()) return;
  hear_of_saves();
  poll();
}

void HfFolders::at_end() {
  if (!is_on()) return;
  const StopSignals signals;
  set_awaited("the Hugging Face folder of the last checkpoint; the checkpoint itself is saved");
  const WaitsFor waits(Waiting::kOthers, "the Hugging Face folder", "--save-hf");
  hear_of_saves();
  if (heard_) add(*heard_);
  for (poll(); program_.is_running() && !signals.received(); poll()) std::this_thread::sleep_for(kLookAtExport);
}

}  // namespace espalier::train
