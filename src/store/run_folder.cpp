#include "store/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "store/manifest.h"

namespace espalier::store {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockName = ".lock";

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// "step_00001000.superseded.2" -> {"step_00001000", ".superseded.2"}
std::pair<std::string, std::string> split_name(const std::string& name) {
  const size_t dot = name.find('.');
  return dot == std::string::npos ? std::pair(name, std::string()) : std::pair(name.substr(0, dot), name.substr(dot));
}

bool has_manifest(const fs::path& folder) { return fs::is_regular_file(folder / kManifestName); }

fs::path absolute_path(const fs::path& path) {
  std::error_code error;
  fs::path found = fs::weakly_canonical(path, error);
  if (error) found = fs::absolute(path).lexically_normal();
  return found.has_filename() ? found : found.parent_path();  // "run/" is "run"
}

std::string names_of(const std::vector<StepEntry>& entries) {
  std::vector<std::string> names;
  for (const StepEntry& entry : entries) names.push_back(entry.folder.filename().string());
  return join(names, ", ");
}

// What a folder holds, for the error that finds nothing to load in it.
std::string describe(const fs::path& folder) {
  if (!fs::exists(folder)) {
    fs::path parent = absolute_path(folder);
    while (!fs::exists(parent) && parent.has_parent_path()) parent = parent.parent_path();
    return concat("it does not exist (", parent.string(), " does)");
  }
  if (!fs::is_directory(folder)) return "it is no folder";
  const RunListing listing = list_steps(folder);
  std::vector<std::string> parts;
  if (!listing.complete.empty()) parts.push_back("complete: " + names_of(listing.complete));
  if (!listing.partial.empty()) parts.push_back("unfinished: " + names_of(listing.partial));
  if (!listing.superseded.empty()) parts.push_back("set aside: " + names_of(listing.superseded));
  std::vector<std::string> others;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("step_", 0) != 0) others.push_back(name);
  }
  std::sort(others.begin(), others.end());
  if (others.size() > 12) others.resize(12), others.push_back("...");
  if (!others.empty()) parts.push_back("other files: " + join(others, ", "));
  return parts.empty() ? "it is empty" : "it holds " + join(parts, "; ");
}

// Moves a folder to the first free name of `folder.superseded`, `folder.superseded.2`, ...
void set_aside(const fs::path& folder) {
  fs::path target = folder.string() + ".superseded";
  for (int number = 2; fs::exists(target); ++number) target = concat(folder.string(), ".superseded.", number);
  fs::rename(folder, target);
}

// The step of a line of metrics.jsonl, nullopt when the line was cut off.
std::optional<int64_t> step_of_record(const std::string& line) {
  const nlohmann::json record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object() || !record.contains("step") || !record["step"].is_number_integer()) return std::nullopt;
  return record["step"].get<int64_t>();
}

int64_t supersede_records(const fs::path& run_folder, int64_t step) {
  const fs::path metrics = run_folder / "metrics.jsonl", superseded = run_folder / "metrics.superseded.jsonl";
  if (!fs::exists(metrics)) return 0;
  std::string kept, moved;
  int64_t num_moved = 0;
  const std::string content = read_file(metrics);
  for (size_t begin = 0; begin < content.size();) {
    const size_t end = std::min(content.find('\n', begin), content.size());
    const std::string line = content.substr(begin, end - begin);
    const std::optional<int64_t> record_step = end == content.size() ? std::nullopt : step_of_record(line);
    if (record_step && *record_step <= step)
      kept += line + "\n";
    else
      moved += line + "\n", ++num_moved;
    begin = end + 1;
  }
  if (num_moved == 0) return 0;
  // Killed after the first write, the second attempt finds its lines there already.
  const std::string before = fs::exists(superseded) ? read_file(superseded) : "";
  if (!ends_with(before, moved)) write_file_atomically(superseded, before + moved);
  write_file_atomically(metrics, kept);
  return num_moved;
}

std::string lock_text() {
  char host[256] = "unknown";
  ::gethostname(host, sizeof host - 1);
  char now[32];
  const std::time_t seconds = std::time(nullptr);
  std::tm parts;
  ::gmtime_r(&seconds, &parts);
  std::strftime(now, sizeof now, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return concat("process ", ::getpid(), " on ", host, ", since ", now, "\n");
}

}  // namespace

std::string step_folder_name(int64_t step) { return format_printf("step_%08lld", static_cast<long long>(step)); }

std::optional<int64_t> step_of_folder(const std::string& name) {
  if (name.rfind("step_", 0) != 0 || name.size() < 6) return std::nullopt;
  int64_t step = -1;
  const char *begin = name.data() + 5, *end = name.data() + name.size();
  const auto [stopped, error] = std::from_chars(begin, end, step);
  if (error != std::errc() || stopped != end || step < 0 || step_folder_name(step) != name) return std::nullopt;
  return step;
}

RunListing list_steps(const fs::path& run_folder) {
  RunListing listing;
  if (!fs::is_directory(run_folder)) return listing;
  for (const auto& entry : fs::directory_iterator(run_folder)) {
    if (!entry.is_directory()) continue;
    const auto [name, ending] = split_name(entry.path().filename().string());
    const std::optional<int64_t> step = step_of_folder(name);
    if (!step) continue;
    const StepEntry found{*step, entry.path()};
    if (ending.empty() && has_manifest(entry.path()))
      listing.complete.push_back(found);
    else if (ending.empty() || ending == ".partial")
      listing.partial.push_back(found);
    else if (ending.rfind(".superseded", 0) == 0 || ending == ".removing")
      listing.superseded.push_back(found);
  }
  for (auto* list : {&listing.complete, &listing.partial, &listing.superseded})
    std::sort(list->begin(), list->end(), [](const StepEntry& a, const StepEntry& b) {
      return std::tie(a.step, a.folder) < std::tie(b.step, b.folder);
    });
  return listing;
}

std::optional<StepEntry> find_checkpoint(const fs::path& load, std::optional<int64_t> ckpt_step, const fs::path& save) {
  if (has_manifest(load)) {
    const int64_t step = read_manifest(load).state.step;
    if (ckpt_step && *ckpt_step != step)
      throw UserError(concat("'", load.string(), "' is the checkpoint of step ", step, ", --ckpt-step asks for ",
                             *ckpt_step, ". Give the run folder, or leave out --ckpt-step."),
                      ExitCode::kUsage);
    return StepEntry{step, load};
  }
  const RunListing listing = list_steps(load);
  if (ckpt_step) {
    for (const StepEntry& entry : listing.complete)
      if (entry.step == *ckpt_step) return entry;
    throw UserError(
        concat("'", load.string(), "' has no complete ", step_folder_name(*ckpt_step), ": ", describe(load)),
        ExitCode::kMissingInput);
  }
  if (!listing.complete.empty()) return listing.complete.back();
  if (!save.empty() && absolute_path(load) == absolute_path(save)) return std::nullopt;
  throw UserError(concat("'", load.string(), "' holds no complete checkpoint: ", describe(load)),
                  ExitCode::kMissingInput);
}

Superseded supersede_after(const fs::path& run_folder, int64_t step) {
  Superseded result;
  const RunListing listing = list_steps(run_folder);
  for (const StepEntry& entry : listing.complete) {
    if (entry.step <= step) continue;
    set_aside(entry.folder);
    result.steps.push_back(entry.step);
  }
  if (!result.steps.empty()) fsync_directory(run_folder);
  result.num_records = supersede_records(run_folder, step);
  return result;
}

Superseded prepare_save_folder(const fs::path& save, const std::optional<StepEntry>& loaded, int64_t first_step) {
  const bool goes_on = loaded && absolute_path(loaded->folder).parent_path() == absolute_path(save);
  const RunListing listing = list_steps(save);
  if (!goes_on && !listing.complete.empty())
    throw UserError(
        concat("--save '", save.string(), "' already holds checkpoints up to ",
               listing.complete.back().folder.filename().string(),
               ", and this run does not go on from them. Give --load ", save.string(), " to go on, or another --save."),
        ExitCode::kCannotCreate);
  return supersede_after(save, first_step);
}

std::string other_steps_hint(const fs::path& step_folder) {
  std::vector<std::string> steps;
  const fs::path folder = absolute_path(step_folder);
  for (const StepEntry& entry : list_steps(folder.parent_path()).complete)
    if (entry.folder.filename() != folder.filename()) steps.push_back(std::to_string(entry.step));
  if (steps.empty()) return "";
  return concat(" Other complete steps: ", join(steps, ", "), "; load one with --ckpt-step.");
}

std::optional<RunLock> RunLock::take_if_free(const fs::path& run_folder) {
  std::error_code error;
  fs::create_directories(run_folder, error);
  const fs::path path = run_folder / kLockName;
  RunLock lock(error ? -1 : ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (lock.descriptor_ < 0)
    throw UserError(concat("cannot create '", path.string(), "': ", error ? error.message() : std::strerror(errno)),
                    ExitCode::kCannotCreate);
  if (::flock(lock.descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return std::nullopt;
    throw UserError(concat("cannot lock '", path.string(), "': ", std::strerror(errno)), ExitCode::kInputOutput);
  }
  // The text is for people; the lock itself is the kernel's and ends with the process.
  const std::string text = lock_text();
  if (::ftruncate(lock.descriptor_, 0) != 0 ||
      ::pwrite(lock.descriptor_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    throw UserError(concat("cannot write '", path.string(), "': ", std::strerror(errno)), ExitCode::kInputOutput);
  return lock;
}

RunLock::RunLock(const fs::path& run_folder) {
  std::optional<RunLock> lock = take_if_free(run_folder);
  if (!lock)
    throw UserError(concat("'", run_folder.string(), "' is in use by ", strip(read_file(run_folder / kLockName)),
                           ". Wait for that run, stop it, or use another --save."),
                    ExitCode::kCannotCreate);
  descriptor_ = std::exchange(lock->descriptor_, -1);
}

RunLock::~RunLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

RunLock::RunLock(RunLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

RunLock& RunLock::operator=(RunLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

}  // namespace espalier::store
