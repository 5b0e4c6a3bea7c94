// espalier runs mirror: the records of a run in another folder, which may be a git work tree.
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "apps/print_json.h"
#include "apps/runs/commands.h"
#include "base/copy_command.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/options.h"
#include "base/output_checks.h"
#include "base/shell.h"
#include "report/journal.h"
#include "store/run_lock.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

constexpr const char* kJournal = "journal.md";  // made anew: the run's own, if it has one, may be older
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
      if (entry.is_regular_file(error) && is_record(entry.path()) && entry.path().filename() != kJournal)
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

// A mirror in a folder, or in a store that a command of the user reaches.
class Mirror {
 public:
  Mirror(const report::Run& run, const std::string& place, const std::string& command)
      : run_(run.folder), place_(concat(place, "/", name_of_folder(run.folder))), command_(command) {
    if (command_.empty()) return;
    lock_.emplace(known_file().parent_path());
    std::error_code error;
    if (!fs::is_regular_file(known_file(), error)) return;
    known_ = Json::parse(read_file(known_file()), nullptr, /*allow_exceptions=*/false);
    if (!known_.is_object()) known_ = Json::object();
  }

  const std::string& place() const { return place_; }

  // What is still being written is copied as far as it is. False where the mirror has it as it is now.
  bool copy(const fs::path& from, const fs::path& under) {
    if (!command_.empty()) {
      const std::string size_and_time = stamp_of(from);
      const std::string target = concat(place_, "/", under.string());
      if (known_.value(target, "") == size_and_time) return false;
      put(read_file(from), target);
      note(target, size_and_time);
      return true;
    }
    const fs::path to = fs::path(place_) / under;
    std::error_code error;
    if (fs::is_regular_file(to, error) && stamp_of(to) == stamp_of(from)) return false;
    const auto time = fs::last_write_time(from, error);
    write(to, read_file(from));
    fs::last_write_time(to, time, error);
    return true;
  }

  // A record that is made for the mirror.
  bool copy_text(const std::string& text, const fs::path& under) {
    if (!command_.empty()) {
      const std::string target = concat(place_, "/", under.string()), hash = hex64(hash64(text));
      if (known_.value(target, "") == hash) return false;
      put(text, target);
      note(target, hash);
      return true;
    }
    const fs::path to = fs::path(place_) / under;
    std::error_code error;
    if (fs::is_regular_file(to, error) && read_file(to) == text) return false;
    write(to, text);
    return true;
  }

 private:
  fs::path known_file() const { return run_ / "mirror" / "copied.json"; }
  fs::path scratch() const { return run_ / "mirror" / "scratch"; }

  static std::string stamp_of(const fs::path& file) {
    std::error_code error;
    return concat(fs::file_size(file, error), " ", fs::last_write_time(file, error).time_since_epoch().count());
  }

  static void write(const fs::path& to, const std::string& text) {
    if (const std::error_code failed = create_folders(to.parent_path()); failed)
      throw UserError(concat("cannot create '", to.parent_path().string(), "': ", failed.message()),
                      ExitCode::kCannotCreate);
    write_file_atomically(to, text);
  }

  // From a copy of its own: what comes back is compared, and a record may grow meanwhile.
  void put(const std::string& text, const std::string& target) const {
    write(scratch() / "record", text);
    CopyCommand(command_).put(scratch() / "record", target, scratch());
    fs::remove_all(scratch());
  }

  void note(const std::string& target, const std::string& what) {
    known_[target] = what;
    write_file_atomically(known_file(), known_.dump(1) + "\n");
  }

  const fs::path run_;
  const std::string place_, command_;
  std::optional<store::RunLock> lock_;
  Json known_ = Json::object();
};

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
  std::string to, with;
  bool git = false, json = false;
  OptionTable table(
      "espalier runs mirror",
      "Copies what has changed of a run's records (metrics, events, journal, logs, TensorBoard files; no "
      "checkpoints) to FOLDER/RUN_NAME. With --git FOLDER is a git work tree: commits, and pushes where the "
      "branch has an upstream.");
  table.positional("RUN_FOLDER", folders, "folder of a run (--save)", 1, 1);
  table.add("--to", to, "the folder that gets a folder of the run's name; with --with what the command takes for one")
      .required();
  table.add("--with", with,
            "for sh, with {source} and {target}: copies a file where cp cannot ('rclone copyto {source} {target}'); it "
            "is called again with both exchanged, and what comes back must be equal");
  table.add("--files", more, "more files, such as the job's output: they come to FOLDER/RUN_NAME/logs");
  table.add("--git", git, "commit and push");
  table.add("--json", json, "one JSON object: folder, copied");
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  CopyCommand::check(with, problems);
  if (git && !with.empty()) problems.add("--git commits in a folder, and --with copies to none: give one of them");
  problems.raise();
  const report::Run run = report::read_run(fs::absolute(folders[0]).lexically_normal());
  std::error_code error;
  if (with.empty() && !fs::is_directory(to, error))
    throw UserError(concat("--to '", to, "' is no folder: create it, or mount its file system"),
                    ExitCode::kMissingInput);
  if (with.empty()) check_is_outside(to, run.folder);
  const std::string name = name_of_folder(run.folder);
  Mirror mirror(run, to, with);
  Json copied = Json::array();
  if (!run.events.empty() && mirror.copy_text(report::journal_text(run, report::read_journal(run)), kJournal))
    copied.push_back(kJournal);
  for (const auto& [from, under] : records_of(run, more))
    if (mirror.copy(from, under)) copied.push_back(under.string());
  if (git) commit(to, name, concat("run ", name, ": ", report::to_string(run.status)));
  if (json)
    print_json(Json{{"folder", mirror.place()}, {"copied", copied}});
  else
    std::printf("%s copied to %s\n", format_counted(static_cast<int64_t>(copied.size()), "file").c_str(),
                mirror.place().c_str());
  return 0;
}

}  // namespace espalier
