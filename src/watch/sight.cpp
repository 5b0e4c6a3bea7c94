#include "watch/sight.h"

#include <algorithm>
#include <cmath>
#include <system_error>

#include "base/error.h"
#include "base/hash.h"
#include "launch/control_socket.h"
#include "launch/launcher.h"
#include "report/metrics_reader.h"
#include "report/run_reader.h"
#include "store/prune.h"

namespace espalier::watch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOwnPrefix = "watch: ";
constexpr double kSecondsToAnswer = 5;

bool goes_on(const std::string& detail) {
  return detail.ends_with(launch::kRestartFollows) || detail.ends_with(launch::kGoesOnWithout);
}

void read_steps(const report::Metrics& metrics, RunSight& sight) {
  if (!metrics.steps.empty()) sight.step = metrics.steps.back();
  const auto column = metrics.columns.find("step_seconds");
  if (column == metrics.columns.end()) return;
  std::vector<double> seconds = column->second;
  std::erase_if(seconds, [](double value) { return !std::isfinite(value) || value <= 0; });
  if (seconds.empty()) return;
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  sight.step_seconds = *middle;
}

void read_checkpoints(RunSight& sight) {
  const store::RunListing listing = store::list_steps(sight.folder);
  if (listing.complete.empty()) return;
  const store::StepEntry& newest = listing.complete.back();
  sight.newest_checkpoint = newest.step;
  for (const auto& entry : fs::recursive_directory_iterator(newest.folder))
    if (entry.is_regular_file()) {
      sight.checkpoint_bytes += static_cast<int64_t>(entry.file_size());
      ++sight.checkpoint_files;
    }
}

// Where the socket that answers for the run is on this machine, and nobody serves it.
bool has_died(const fs::path& folder) {
  bool is_stale = false;
  for (const launch::ControlPlace& place : launch::control_places(folder)) {
    if (!place.is_here) return false;
    const auto outcome = launch::ask_control(place, {{"command", "status"}}, kSecondsToAnswer).outcome;
    if (outcome != launch::ControlOutcome::kStale) return false;
    is_stale = true;
  }
  return is_stale;
}

uint64_t life_of(const RunSight& sight, const report::Run& run) {
  std::string text;
  for (const report::RunEvent& event : run.events)
    if (!event.event.starts_with(kOwnPrefix)) text += concat(event.time, event.event, event.detail, '\n');
  std::error_code ignored;
  // What other ranks save: the folder of a checkpoint that is being written, and its files.
  for (const store::StepEntry& entry : store::list_steps(sight.folder).partial)
    for (const auto& file : fs::recursive_directory_iterator(entry.folder, ignored))
      text += concat(file.path().string(), file.is_regular_file(ignored) ? file.file_size(ignored) : 0, '\n');
  return hash64(concat(text, sight.step, ' ', fs::file_size(sight.folder / "metrics.jsonl", ignored), ' ',
                       sight.newest_checkpoint));
}

}  // namespace

std::optional<double> RunSight::seconds_left() const {
  if (last_word == LastWord::kFinished) return 0;
  if (!num_steps || step < 0 || step_seconds <= 0) return std::nullopt;
  return static_cast<double>(std::max<int64_t>(0, *num_steps - step)) * step_seconds;
}

void read_event(const report::RunEvent& event, RunSight& sight) {
  const std::string& name = event.event;
  const auto say = [&](LastWord word) {
    sight.last_word = word, sight.detail = event.detail, sight.end_is_told = false;
  };
  if (name == "start") say(LastWord::kStart), ++sight.starts;
  if (name == "start" || name == "resume") sight.is_paused = false;
  if (name == "pause") sight.is_paused = true;
  if (name == "stop") say(LastWord::kStopped);
  if (name == "end") say(LastWord::kFinished);
  if (name == "error" || name == "failure") say(goes_on(event.detail) ? LastWord::kStart : LastWord::kFailed);
  if (name == "alerted" && sight.last_word == LastWord::kFailed && event.detail.starts_with("failure"))
    sight.end_is_told = true;
}

RunSight see_run(const fs::path& folder) {
  RunSight sight;
  sight.folder = folder;
  try {
    if (!report::is_run_folder(folder)) return sight;
    const report::Run run = report::read_run(folder);
    sight.num_steps = run.num_steps;
    for (const report::RunEvent& event : run.events) read_event(event, sight);
    read_steps(report::read_last_metrics(folder / "metrics.jsonl", {"step_seconds"}, 64), sight);
    read_checkpoints(sight);
    sight.has_died = sight.last_word == LastWord::kStart && has_died(folder);
    sight.life = life_of(sight, run);
    std::error_code ignored;
    sight.story = hash64(concat(fs::file_size(folder / "events.jsonl", ignored), ' ', sight.newest_checkpoint));
  } catch (const UserError&) {             // not readable now: no sign of life
  } catch (const fs::filesystem_error&) {  // a file went away while it was looked at
  }
  return sight;
}

std::string own_event(const std::string& what) { return kOwnPrefix + what; }

}  // namespace espalier::watch
