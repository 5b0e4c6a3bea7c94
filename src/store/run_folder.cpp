#include "store/run_folder.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/foreign_checkpoint.h"
#include "base/format.h"
#include "base/log.h"
#include "store/internal/paths.h"
#include "store/internal/plain_errors.h"
#include "store/manifest.h"
#include "store/prune.h"

namespace espalier::store {
namespace {

namespace fs = std::filesystem;
using internal::absolute_path;

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// "step_00001000.superseded.2" -> {"step_00001000", ".superseded.2"}
std::pair<std::string, std::string> split_name(const std::string& name) {
  const size_t dot = name.find('.');
  return dot == std::string::npos ? std::pair(name, std::string()) : std::pair(name.substr(0, dot), name.substr(dot));
}

// One that is not a file counts as there: reading it says what is wrong.
bool has_manifest(const fs::path& folder) { return fs::exists(folder / kManifestName); }

std::string names_of(const std::vector<StepEntry>& entries) {
  std::vector<std::string> names;
  for (const StepEntry& entry : entries) names.push_back(entry.folder.filename().string());
  return join(names, ", ");
}

// Those newer than `step` that a run would find if they had a manifest.
std::vector<StepEntry> without_manifest(const RunListing& listing, int64_t step) {
  std::vector<StepEntry> found;
  for (const StepEntry& entry : listing.partial)
    if (entry.step > step && entry.folder.extension() != ".partial") found.push_back(entry);
  return found;
}

// What a folder holds, for the error that finds nothing to load in it.
std::string describe(const fs::path& folder) {
  if (!fs::exists(folder)) {
    fs::path parent = absolute_path(folder);
    while (!fs::exists(parent) && parent.has_parent_path()) parent = parent.parent_path();
    return concat("it does not exist (", parent.string(), " does)");
  }
  if (!fs::is_directory(folder)) return "it is not a folder";
  if (const auto foreign = describe_foreign_checkpoint(folder)) return *foreign;
  const RunListing listing = list_steps(folder);
  std::vector<std::string> parts;
  if (!listing.complete.empty()) parts.push_back("complete: " + names_of(listing.complete));
  if (!listing.partial.empty()) parts.push_back("unfinished: " + names_of(listing.partial));
  if (!listing.superseded.empty()) parts.push_back("set aside: " + names_of(listing.superseded));
  std::vector<std::string> others, runs;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("step_", 0) == 0) continue;
    const bool is_run = fs::is_directory(entry.path(), ignored) && !list_steps(entry.path()).complete.empty();
    (is_run ? runs : others).push_back(is_run ? entry.path().string() : name);
  }
  std::sort(others.begin(), others.end());
  std::sort(runs.begin(), runs.end());
  if (runs.size() > 8) runs.resize(8), runs.push_back("...");
  if (!runs.empty()) parts.push_back("runs, one of which can be named: " + join(runs, ", "));
  if (others.size() > 12) others.resize(12), others.push_back("...");
  if (!others.empty()) parts.push_back("other files: " + join(others, ", "));
  return parts.empty() ? "it is empty" : "it holds " + join(parts, "; ");
}

// Moves a folder to the first free name of `folder.ENDING`, `folder.ENDING.2`, ... and returns the name.
std::string set_aside(const fs::path& folder, const char* ending = ".superseded") {
  fs::path target = folder.string() + ending;
  for (int number = 2; fs::exists(target); ++number) target = concat(folder.string(), ending, ".", number);
  fs::rename(folder, target);
  return target.filename().string();
}

// ".ckpt_step_4": a run that began at step 4 because its command says so has done so.
constexpr const char* kAskedForPrefix = ".ckpt_step_";

fs::path asked_for_mark(const fs::path& save, int64_t step) { return save / concat(kAskedForPrefix, step); }

// The step that a command asks for in the folder that it saves to.
std::optional<int64_t> step_asked_for(const fs::path& load, std::optional<int64_t> ckpt_step, const fs::path& save) {
  if (save.empty() || load.empty()) return std::nullopt;
  const fs::path from = absolute_path(load), to = absolute_path(save);
  if (from == to) return ckpt_step;
  return from.parent_path() == to ? step_of_folder(from.filename().string()) : std::nullopt;
}

// True where the run has begun at that step before, and has gone on from there.
bool has_begun_there(const fs::path& save, int64_t step) {
  if (!fs::exists(asked_for_mark(save, step))) return false;
  const RunListing listing = list_steps(save);
  if (listing.complete.empty()) return false;
  log_info("this run has begun at step ", step,
           " before, as its command asks, and continues from its newest checkpoint, ",
           listing.complete.back().folder.filename().string(), ". To go back to step ", step, " once more remove '",
           asked_for_mark(save, step).string(), "'.");
  return true;
}

void warn_of_passed_over(const RunListing& listing, const StepEntry& taken) {
  const std::vector<StepEntry> passed_over = without_manifest(listing, taken.step);
  if (!passed_over.empty())
    log_warning(names_of(passed_over), " in '", taken.folder.parent_path().string(), "' ",
                passed_over.size() == 1 ? "has" : "have", " no ", kManifestName,
                " (a copy that was interrupted?) and cannot be loaded: ", taken.folder.filename().string(),
                " is used. Complete the copy, and start again, if it should count.");
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

namespace {

void add_steps(const fs::path& run_folder, RunListing& listing) {
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
    else if (ending.starts_with(".superseded") || ending.starts_with(".incomplete") || ending.starts_with(".damaged") ||
             ends_with(ending, ".removing"))
      listing.superseded.push_back(found);
  }
}

}  // namespace

RunListing list_steps(const fs::path& run_folder) {
  RunListing listing;
  with_plain_errors([&] {
    if (fs::is_directory(run_folder)) add_steps(run_folder, listing);
  });
  for (auto* list : {&listing.complete, &listing.partial, &listing.superseded})
    std::sort(list->begin(), list->end(), [](const StepEntry& a, const StepEntry& b) {
      return std::tie(a.step, a.folder) < std::tie(b.step, b.folder);
    });
  return listing;
}

namespace {

StepEntry checkpoint_of_step_folder(const fs::path& folder, std::optional<int64_t> ckpt_step) {
  const int64_t step = read_manifest(folder).state.step;
  if (ckpt_step && *ckpt_step != step)
    throw UserError(concat("'", folder.string(), "' is the checkpoint of step ", step, ", --ckpt-step asks for ",
                           *ckpt_step, ". Give the run folder, or leave out --ckpt-step."),
                    ExitCode::kUsage);
  return StepEntry{step, folder};
}

std::optional<StepEntry> newest_checkpoint(const fs::path& load, const fs::path& save) {
  const RunListing listing = list_steps(load);
  if (!listing.complete.empty()) {
    warn_of_passed_over(listing, listing.complete.back());
    return listing.complete.back();
  }
  const bool may_be_new = !save.empty() && absolute_path(load) == absolute_path(save);
  const std::vector<StepEntry> broken = without_manifest(listing, -1);
  if (may_be_new && broken.empty() && !describe_foreign_checkpoint(load)) return std::nullopt;
  throw UserError(concat("'", load.string(), "' holds no complete checkpoint: ", describe(load),
                         broken.empty() ? ""
                                        : concat(". Without ", kManifestName, " ", names_of(broken),
                                                 " cannot be loaded: complete the copy, or move it out of the folder")),
                  ExitCode::kMissingInput);
}

}  // namespace

std::optional<StepEntry> find_checkpoint(const fs::path& load, std::optional<int64_t> ckpt_step, const fs::path& save) {
  return with_plain_errors([&]() -> std::optional<StepEntry> {
    const std::optional<int64_t> asked_for = step_asked_for(load, ckpt_step, save);
    if (asked_for && has_begun_there(save, *asked_for)) return newest_checkpoint(save, save);
    if (has_manifest(load)) return checkpoint_of_step_folder(load, ckpt_step);
    if (!ckpt_step) return newest_checkpoint(load, save);
    for (const StepEntry& entry : list_steps(load).complete)
      if (entry.step == *ckpt_step) return entry;
    throw UserError(
        concat("'", load.string(), "' has no complete ", step_folder_name(*ckpt_step), ": ", describe(load)),
        ExitCode::kMissingInput);
  });
}

void remember_step_asked_for(const fs::path& load, std::optional<int64_t> ckpt_step, const fs::path& save) {
  with_plain_errors([&] {
    const std::optional<int64_t> asked_for = step_asked_for(load, ckpt_step, save);
    for (const auto& entry : fs::directory_iterator(save)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(kAskedForPrefix) && (!asked_for || entry.path() != asked_for_mark(save, *asked_for)))
        fs::remove(entry.path());
    }
    if (asked_for && !fs::exists(asked_for_mark(save, *asked_for)))
      write_file_atomically(asked_for_mark(save, *asked_for),
                            concat("The run in this folder began at step ", *asked_for,
                                   ", as its command asks. Restarted by the same command it continues from its newest "
                                   "checkpoint; without this file it would go back to step ",
                                   *asked_for, ".\n"));
  });
}

std::optional<std::string> set_damaged_aside(const fs::path& step_folder, const fs::path& save) {
  return with_plain_errors([&]() -> std::optional<std::string> {
    const RunLock lock(save);
    const RunListing listing = list_steps(save);
    const size_t count = listing.complete.size();
    if (count < 2 || absolute_path(listing.complete.back().folder) != absolute_path(step_folder)) return std::nullopt;
    const StepEntry &newest = listing.complete.back(), &older = listing.complete[count - 2];
    const std::string name = set_aside(newest.folder, ".damaged");
    fsync_directory(save);
    return concat(newest.folder.filename().string(), " cannot be loaded and is now ", name, ". The run goes back to ",
                  older.folder.filename().string(), ": steps ", older.step + 1, " to ", newest.step,
                  " are trained again");
  });
}

Superseded supersede_after(const fs::path& run_folder, int64_t step) {
  Superseded result;
  with_plain_errors([&] {
    const RunListing listing = list_steps(run_folder);
    for (const StepEntry& entry : listing.complete) {
      if (entry.step <= step) continue;
      set_aside(entry.folder);
      result.steps.push_back(entry.step);
    }
    if (!result.steps.empty()) fsync_directory(run_folder);
    result.num_records = supersede_records(run_folder, step);
  });
  return result;
}

Superseded prepare_save_folder(const fs::path& save, const std::optional<StepEntry>& loaded, int64_t first_step) {
  const bool goes_on = loaded && absolute_path(loaded->folder).parent_path() == absolute_path(save);
  const RunListing listing = list_steps(save);
  if (!goes_on && !listing.complete.empty())
    throw UserError(concat("--save '", save.string(), "' already holds checkpoints up to ",
                           listing.complete.back().folder.filename().string(),
                           ", and this run does not continue from them. Give --load ", save.string(),
                           " to continue, or another --save."),
                    ExitCode::kCannotCreate);
  Superseded result = supersede_after(save, first_step);
  with_plain_errors([&] {
    for (const StepEntry& entry : without_manifest(listing, first_step))
      result.incomplete.push_back(set_aside(entry.folder, ".incomplete"));
    for (const auto* list : {&listing.partial, &listing.superseded})
      for (const StepEntry& entry : *list) {
        if (entry.folder.extension() != ".partial" && entry.folder.extension() != ".removing") continue;
        remove_step_folder(entry);
        result.removed.push_back(entry.folder.filename().string());
      }
  });
  return result;
}

std::string other_steps_hint(const fs::path& step_folder) {
  std::vector<std::string> steps;
  const fs::path folder = absolute_path(step_folder);
  for (const StepEntry& entry : list_steps(folder.parent_path()).complete)
    if (entry.folder.filename() != folder.filename()) steps.push_back(std::to_string(entry.step));
  if (steps.empty()) return "";
  return concat(" Other complete steps: ", join(steps, ", "), "; load one with --ckpt-step.");
}

}  // namespace espalier::store
