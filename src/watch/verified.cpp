#include "watch/verified.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "store/backup.h"
#include "store/manifest.h"
#include "watch/heartbeat.h"

namespace espalier::watch {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double kClockMayDiffer = 86400;  // seconds, between whoever writes files and whoever reads them
constexpr size_t kProblemsThatAreKept = 3;

struct Verified {
  double time = 0;
  int64_t num_problems = 0;
  std::vector<std::string> problems;  // the first of them
};
using VerifiedSteps = std::map<int64_t, Verified>;

fs::path verified_file(const fs::path& run) { return watch_folder(run) / "verified.json"; }

VerifiedSteps read_verified(const fs::path& run) {
  VerifiedSteps steps;
  std::error_code error;
  if (!fs::is_regular_file(verified_file(run), error)) return steps;
  const Json list = Json::parse(read_file(verified_file(run)), nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return steps;
  try {
    for (const Json& entry : list)
      steps[entry.at("step").get<int64_t>()] = {.time = entry.at("time").get<double>(),
                                                .num_problems = entry.at("num_problems").get<int64_t>(),
                                                .problems = entry.at("problems").get<std::vector<std::string>>()};
  } catch (const Json::exception&) {  // of another version, or not ours: all counts from when it was written
    steps.clear();
  }
  return steps;
}

// Seconds since 1970; 0 where there is no such file.
double time_of(const fs::path& file) {
  struct stat status = {};
  if (::stat(file.c_str(), &status) != 0) return 0;
  return static_cast<double>(status.st_mtim.tv_sec) + 1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
}

double time_of_newest_file(const fs::path& folder) {
  double newest = 0;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(folder, error))
    if (entry.is_regular_file(error)) newest = std::max(newest, time_of(entry.path()));
  return newest;
}

// What was found of a step, as far as it still holds.
const Verified* find(const VerifiedSteps& steps, const store::StepEntry& entry) {
  const auto found = steps.find(entry.step);
  if (found == steps.end() || time_of(entry.folder / store::kManifestName) > found->second.time) return nullptr;
  return &found->second;
}

std::string places_of_copies(const fs::path& run, int64_t step) {
  std::vector<std::string> places;
  for (const store::BackupRecord& record : store::read_backups(run))
    if (record.step == step && record.kind == "full" &&
        std::find(places.begin(), places.end(), record.target) == places.end())
      places.push_back(record.target);
  return places.empty() ? "; no copy of it is recorded" : "; a copy of it is " + join(places, " and ");
}

}  // namespace

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::optional<NextToVerify> next_to_verify(const fs::path& run_folder) try {
  std::optional<NextToVerify> next;
  const VerifiedSteps steps = read_verified(run_folder);
  for (const store::StepEntry& entry : store::list_steps(run_folder).complete) {
    double last = time_of(entry.folder / store::kManifestName);
    if (const Verified* verified = find(steps, entry)) {
      last = verified->time;
      if (verified->num_problems > 0 && time_of_newest_file(entry.folder) > verified->time) last = 0;
    }
    if (!next || last < next->last) next = {entry, last};
  }
  return next;
} catch (const UserError&) {  // not readable now
  return std::nullopt;
} catch (const fs::filesystem_error&) {  // a step was removed while it was looked at
  return std::nullopt;
}

bool is_due(const NextToVerify& next, double interval_seconds, double now) {
  return now - next.last >= interval_seconds || next.last > now + kClockMayDiffer;
}

bool note_verified(const fs::path& run_folder, const store::StepEntry& entry, double time,
                   const std::vector<std::string>& problems) {
  const double written = time_of(entry.folder / store::kManifestName);
  if (written == 0 || written > time) return false;
  VerifiedSteps steps = read_verified(run_folder);
  steps[entry.step] = {.time = time,
                       .num_problems = static_cast<int64_t>(problems.size()),
                       .problems = {problems.begin(), problems.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                             problems.size(), kProblemsThatAreKept))}};
  Json list = Json::array();
  for (const auto& [step, verified] : steps)
    if (fs::exists(run_folder / store::step_folder_name(step)))
      list.push_back({{"step", step},
                      {"time", verified.time},
                      {"num_problems", verified.num_problems},
                      {"problems", verified.problems}});
  (void)create_folders(watch_folder(run_folder));
  write_file_atomically(verified_file(run_folder), list.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  return true;
}

std::vector<Trouble> damaged_checkpoints(const fs::path& run_folder) try {
  std::vector<Trouble> troubles;
  const VerifiedSteps steps = read_verified(run_folder);
  if (std::none_of(steps.begin(), steps.end(), [](const auto& step) { return step.second.num_problems > 0; }))
    return troubles;
  for (const store::StepEntry& entry : store::list_steps(run_folder).complete) {
    const Verified* verified = find(steps, entry);
    if (verified == nullptr || verified->num_problems == 0) continue;
    const std::string name = entry.folder.filename().string();
    troubles.push_back({"damaged checkpoint: " + name, run_folder.string(),
                        concat(name, " cannot be read back as it was saved: ", join(verified->problems, "; "),
                               verified->num_problems > static_cast<int64_t>(verified->problems.size())
                                   ? concat(" (", verified->num_problems, " problems in all)")
                                   : std::string(),
                               places_of_copies(run_folder, entry.step),
                               ". Replace it or move it out of the run's folder, and suspect the disk")});
  }
  return troubles;
} catch (const UserError&) {
  return {};
} catch (const fs::filesystem_error&) {
  return {};
}

}  // namespace espalier::watch
