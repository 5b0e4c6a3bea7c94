// espalier runs mirror: the records of a run in another folder, which may be a git work tree.
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "apps/print_json.h"
#include "apps/runs/commands.h"
#include "base/file.h"
#include "base/format.h"
#include "base/options.h"
#include "base/output_checks.h"
#include "base/shell.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

constexpr const char* kEndings[] = {".jsonl", ".toml", ".txt", ".md", ".log"};

bool is_record(const fs::path& path) {
  const std::string ending = path.extension().string();
  return std::find(std::begin(kEndings), std::end(kEndings), ending) != std::end(kEndings) ||
         path.filename().string().starts_with("events.out.tfevents");
}

// The run's own records, those of its watch, and its TensorBoard files, by the name that each has in the mirror.
std::vector<std::pair<fs::path, fs::path>> records_of(const report::Run& run, const Words& more) {
  std::vector<std::pair<fs::path, fs::path>> records;
  const auto add_folder = [&](const fs::path& folder, const fs::path& name) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error))
      if (entry.is_regular_file(error) && is_record(entry.path()))
        records.emplace_back(entry.path(), name / entry.path().filename());
  };
  add_folder(run.folder, "");
  add_folder(run.folder / "watch", "watch");
  add_folder(run.folder / "backup", "backup");
  add_folder(run.folder / "tensorboard", "tensorboard");
  if (const auto found = run.options.find("tensorboard_dir"); found != run.options.end() && found->second.size() > 2)
    add_folder(found->second.substr(1, found->second.size() - 2), "tensorboard");  // without its quotes
  for (const std::string& file : more) records.emplace_back(file, fs::path("logs") / fs::path(file).filename());
  std::sort(records.begin(), records.end());
  return records;
}

// Whether the mirror has it as it is now.
bool is_there(const fs::path& from, const fs::path& to) {
  std::error_code error;
  return fs::is_regular_file(to, error) && fs::file_size(to, error) == fs::file_size(from, error) &&
         fs::last_write_time(to, error) == fs::last_write_time(from, error);
}

// What is still being written is copied as far as it is.
bool copy_record(const fs::path& from, const fs::path& to) {
  if (is_there(from, to)) return false;
  std::error_code error;
  const auto time = fs::last_write_time(from, error);
  if (const std::error_code failed = create_folders(to.parent_path()); failed)
    throw UserError(concat("cannot create '", to.parent_path().string(), "': ", failed.message()),
                    ExitCode::kCannotCreate);
  write_file_atomically(to, read_file(from));
  fs::last_write_time(to, time, error);
  return true;
}

void run_git(const std::string& folder, const std::string& words) {
  const std::string command = concat("git -C ", shell_word(folder), " ", words);
  const int status = std::system((command + " >&2").c_str());
  if (status != 0)
    throw UserError(concat(command, " failed with exit code ", WIFEXITED(status) ? WEXITSTATUS(status) : 1));
}

bool succeeds(const std::string& folder, const std::string& words) {
  return std::system(concat("git -C ", shell_word(folder), " ", words, " >/dev/null 2>&1").c_str()) == 0;
}

void commit(const std::string& folder, const std::string& name, const std::string& message) {
  if (!succeeds(folder, "rev-parse --is-inside-work-tree"))
    throw UserError(concat("--git: '", folder, "' is no git work tree; clone a repository there, or leave out --git"),
                    ExitCode::kMissingInput);
  run_git(folder, "add -A -- " + shell_word(name));
  if (!succeeds(folder, "diff --cached --quiet -- " + shell_word(name)))
    run_git(folder, concat("commit -q -m ", shell_word(message), " -- ", shell_word(name)));
  if (succeeds(folder, "rev-parse '@{upstream}'")) run_git(folder, "push -q");
}

}  // namespace

int runs_mirror_main(const Words& arguments) {
  Words folders, more;
  std::string to;
  bool git = false, json = false;
  OptionTable table(
      "espalier runs mirror",
      "Copies what has changed of a run's records (metrics, events, journal, logs, TensorBoard files; no "
      "checkpoints) to FOLDER/RUN_NAME. With --git FOLDER is a git work tree: commits, and pushes where the "
      "branch has an upstream.");
  table.positional("RUN_FOLDER", folders, "folder of a run (--save)", 1, 1);
  table.add("--to", to, "the folder that gets a folder of the run's name").required();
  table.add("--files", more, "more files, such as the job's output: they come to FOLDER/RUN_NAME/logs");
  table.add("--git", git, "commit and push");
  table.add("--json", json, "one JSON object: folder, copied");
  if (!table.parse(arguments)) return 0;
  const report::Run run = report::read_run(fs::absolute(folders[0]).lexically_normal());
  std::error_code error;
  if (!fs::is_directory(to, error))
    throw UserError(concat("--to '", to, "' is no folder: create it, or mount its file system"),
                    ExitCode::kMissingInput);
  check_is_outside(to, run.folder);
  const std::string name = name_of_folder(run.folder);
  Json copied = Json::array();
  for (const auto& [from, under] : records_of(run, more))
    if (copy_record(from, fs::path(to) / name / under)) copied.push_back(under.string());
  if (git) commit(to, name, concat("run ", name, ": ", report::to_string(run.status)));
  if (json)
    print_json(Json{{"folder", (fs::path(to) / name).string()}, {"copied", copied}});
  else
    std::printf("%s copied to %s\n", format_counted(static_cast<int64_t>(copied.size()), "file").c_str(),
                (fs::path(to) / name).c_str());
  return 0;
}

}  // namespace espalier
