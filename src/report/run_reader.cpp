#include "report/run_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "report/json_line.h"

namespace espalier::report {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRecords[] = {"metrics.jsonl", "events.jsonl", "config.toml"};

// The lines "key = value" of a file that OptionTable::to_toml wrote.
std::map<std::string, std::string> read_options(const fs::path& file) {
  std::map<std::string, std::string> options;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    const size_t equals = line.find('=');
    if (line.empty() || line[0] == '[' || line[0] == '#' || equals == std::string::npos) continue;
    options[strip(line.substr(0, equals))] = strip(line.substr(equals + 1));
  }
  return options;
}

// By time, where it was written late; the lines of others stay as they are, as clocks are set back.
void add_event(const RunEvent& event, std::vector<RunEvent>& events) {
  auto place = events.end();
  while (event.is_late && place != events.begin() && std::prev(place)->time > event.time) --place;
  events.insert(place, event);
}

std::vector<RunEvent> read_events(const fs::path& file) {
  std::vector<RunEvent> events;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    RunEvent event;
    const bool whole = for_each_member(line, [&](std::string_view key, std::string_view value) {
      if (key == "time") event.time = number_of(value);
      if (key == "event") event.event = text_of(value);
      if (key == "detail") event.detail = text_of(value);
      if (key == "late") event.is_late = value == "true";
      if (key == "step" && std::isfinite(number_of(value))) event.step = static_cast<int64_t>(number_of(value));
    });
    if (whole && !event.event.empty()) add_event(event, events);
  }
  return events;
}

std::optional<int64_t> step_of(const std::string& name) {
  constexpr size_t kPrefix = 5;
  if (!name.starts_with("step_") || name.size() == kPrefix) return std::nullopt;
  if (name.find_first_not_of("0123456789", kPrefix) != std::string::npos || name.size() > 20) return std::nullopt;
  return std::stoll(name.substr(kPrefix));
}

std::vector<int64_t> complete_steps(const fs::path& folder) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::optional<int64_t> step = step_of(entry.path().filename().string());
    if (step && fs::exists(entry.path() / "manifest.json", error)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

// Looks for a lock on the file without taking it: a run that begins at that moment must not find it taken.
bool is_locked_here(const fs::path& file) {
  struct stat info = {};
  if (::stat(file.c_str(), &info) != 0) return false;
  const std::string wanted = format_printf("%02x:%02x:%llu ", major(info.st_dev), minor(info.st_dev),
                                           static_cast<unsigned long long>(info.st_ino));
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);)
    if (line.find(wanted) != std::string::npos && line.find("->") == std::string::npos) return true;
  return false;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void find_status(Run& run) {
  constexpr double kMomentSeconds = 120;  // a run on another machine, whose lock does not show here
  const auto last = std::find_if(run.events.rbegin(), run.events.rend(), [](const RunEvent& event) {
    return event.event == "start" || event.event == "stop" || event.event == "end" || event.event == "error" ||
           event.event == "failure";
  });
  const bool is_locked = is_locked_here(run.folder / ".lock");
  if (last == run.events.rend()) {
    const bool has_metrics = fs::exists(run.folder / "metrics.jsonl");
    run.status = is_locked                  ? RunStatus::kRunning
                 : !run.checkpoints.empty() ? RunStatus::kStopped
                 : has_metrics              ? RunStatus::kDied
                                            : RunStatus::kEmpty;
    if (run.status == RunStatus::kDied) run.status_detail = "events.jsonl records no start";
    return;
  }
  run.status_detail = last->detail;
  if (is_locked) {
    run.status = RunStatus::kRunning;
  } else if (last->event == "end") {
    run.status = RunStatus::kFinished;
  } else if (last->event == "stop") {
    run.status = RunStatus::kStopped;
  } else if (last->event == "error" || last->event == "failure") {
    run.status = RunStatus::kFailed;
  } else {
    const bool changes =
        run.changed && seconds_now() - *run.changed < kMomentSeconds && !fs::exists(run.folder / ".lock");
    run.status = changes ? RunStatus::kRunning : RunStatus::kDied;
    run.status_detail = changes ? "" : "no end was recorded";
  }
}

void find_times(Run& run) {
  for (const char* name : kRecords) {
    struct stat info = {};
    if (::stat((run.folder / name).c_str(), &info) != 0) continue;
    const double time = static_cast<double>(info.st_mtim.tv_sec) + static_cast<double>(info.st_mtim.tv_nsec) * 1e-9;
    run.changed = std::max(run.changed.value_or(0), time);
  }
  for (const RunEvent& event : run.events)
    if (event.event == "start" && !run.started) run.started = event.time;
}

void find_num_steps(Run& run) {
  const auto found = run.options.find("train_iters");
  if (found != run.options.end()) {
    const double number = number_of(found->second);
    if (number >= 1 && number < 9e15) run.num_steps = static_cast<int64_t>(number);
  }
  // --train-samples: the number of steps follows from the batch sizes, and the run says it when it starts.
  for (const RunEvent& event : run.events) {
    const std::vector<std::string> words = split_blanks(event.detail);
    if (event.event != "start" || words.size() < 2 || words[0] != "of") continue;
    const double number = number_of(words[1]);
    if (number >= 1 && number < 9e15) run.num_steps = static_cast<int64_t>(number);
  }
}

void collect(const fs::path& folder, int depth, std::set<fs::path>& runs) {
  if (is_run_folder(folder)) {
    runs.insert(folder);
    return;
  }
  std::error_code error;
  if (depth == 0) return;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.is_directory(error) && !entry.is_symlink(error)) collect(entry.path(), depth - 1, runs);
}

}  // namespace

const char* to_string(RunStatus status) {
  switch (status) {
    case RunStatus::kEmpty: return "empty";
    case RunStatus::kRunning: return "running";
    case RunStatus::kFinished: return "finished";
    case RunStatus::kStopped: return "stopped";
    case RunStatus::kFailed: return "failed";
    case RunStatus::kDied: return "died";
  }
  return "";
}

bool is_run_folder(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / "manifest.json", error)) return false;  // a step folder
  for (const char* name : kRecords)
    if (fs::is_regular_file(folder / name, error)) return true;
  return !complete_steps(folder).empty();
}

std::vector<fs::path> find_runs(const std::vector<std::string>& folders, int depth) {
  std::set<fs::path> runs;
  for (const std::string& folder : folders) {
    std::error_code error;
    if (!fs::is_directory(folder, error))
      throw UserError(concat("'", folder, "' ", fs::exists(folder, error) ? "is not a folder" : "does not exist",
                             "; name a run folder (--save of a run) or a folder of them"),
                      ExitCode::kMissingInput);
    fs::path path = fs::path(folder).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    collect(path, depth, runs);
  }
  return {runs.begin(), runs.end()};
}

std::string describe_no_run(const fs::path& folder) {
  constexpr size_t kMostNamed = 8;
  if (is_run_folder(folder)) return "";
  const std::string name = concat("'", folder.string(), "' ");
  std::error_code error;
  if (!fs::exists(folder, error)) return name + "does not exist";
  if (!fs::is_directory(folder, error)) return name + "is a file, not the folder of a run";
  if (::faccessat(AT_FDCWD, folder.c_str(), R_OK | X_OK, AT_EACCESS) != 0)
    return concat(name, "cannot be read: ", std::strerror(errno));
  if (fs::exists(folder / "manifest.json", error)) {
    const fs::path plain = folder.has_filename() ? folder : folder.parent_path();
    const fs::path run = plain.has_parent_path() ? plain.parent_path() : fs::path(".");
    return concat(name, "is a step folder; name the run folder above it",
                  is_run_folder(run) ? concat(", '", run.string(), "'") : "");
  }
  std::vector<std::string> runs;
  for (const fs::path& run : find_runs({folder.string()})) runs.push_back(run.string());
  if (runs.empty()) return name + "is not a run folder: it has neither config.toml nor metrics.jsonl nor a checkpoint";
  const size_t count = runs.size();
  if (count > kMostNamed) runs.resize(kMostNamed), runs.push_back(concat("... (", count, " in all)"));
  return concat(name, "is not a run folder, but holds ", count == 1 ? "one" : "some", ": ", join(runs, ", "));
}

Run read_run(const fs::path& folder) {
  if (const std::string problem = describe_no_run(folder); !problem.empty())
    throw UserError(problem, ExitCode::kMissingInput);
  Run run;
  run.folder = folder;
  run.options = read_options(folder / "config.toml");
  run.events = read_events(folder / "events.jsonl");
  run.checkpoints = complete_steps(folder);
  find_times(run);
  find_num_steps(run);
  find_status(run);
  return run;
}

}  // namespace espalier::report
