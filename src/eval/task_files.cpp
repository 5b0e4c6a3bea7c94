#include "eval/task_files.h"

#include <algorithm>

#include "base/file.h"
#include "base/format.h"
#include "eval/yaml_file.h"

namespace espalier::eval {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepestInclude = 16;

std::vector<std::string> words_of(const TaskFile& file, const char* key) {
  const Json value = file.config.value(key, Json());
  std::vector<std::string> words;
  if (value.is_string()) words.push_back(value.get<std::string>());
  if (value.is_array())
    for (const Json& word : value)
      if (word.is_string()) words.push_back(word.get<std::string>());
  return words;
}

TaskFile read_with_includes(const fs::path& path, int depth) {
  if (depth > kDeepestInclude)
    throw UserError(concat(path.string(), ": its files include one another too deeply"), ExitCode::kBadData);
  YamlFile own = read_yaml(path);
  TaskFile file = {path, Json::object(), {}};
  TaskFile includer = {path, own.content, own.places};
  for (const std::string& name : words_of(includer, "include")) {
    const fs::path included = fs::path(name).is_absolute() ? fs::path(name) : path.parent_path() / name;
    if (!fs::is_regular_file(included))
      throw UserError(concat(includer.place("include"), ": include: there is no '", included.string(), "'"),
                      ExitCode::kBadData);
    const TaskFile base = read_with_includes(included, depth + 1);
    for (const auto& [key, value] : base.config.items()) {
      if (key == "task_list") continue;
      file.config[key] = value;
      file.places[key] = base.place(key);
    }
  }
  for (const auto& [key, value] : own.content.items()) {
    if (key == "include") continue;
    file.config[key] = value;
    file.places[key] = own.places.at(key);
  }
  return file;
}

bool is_task_of(const TaskFile& file, const std::string& name) {
  return !file.config.contains("group") && file.config.value("task", Json()) == Json(name);
}

}  // namespace

const std::string& TaskFile::place(const std::string& key) const {
  const auto found = places.find(key);
  return found == places.end() ? path.native() : found->second;
}

TaskFiles::TaskFiles(fs::path root) : root_(std::move(root)) {
  if (fs::is_regular_file(root_)) {
    files_.push_back(root_);
    return;
  }
  if (!fs::is_directory(root_))
    throw UserError(concat("--task-files ", root_.string(), ": no such folder or file"), ExitCode::kUsage);
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root_))
    if (entry.path().extension() == ".yaml" && entry.is_regular_file()) files_.push_back(entry.path());
  std::sort(files_.begin(), files_.end(), [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
}

// Thousands of files: only those that have the name anywhere are parsed. A file that cannot be read may be another
// task's; one that has no other claimant is named.
TaskFiles::Found TaskFiles::look_for(const std::string& name) {
  Found found;
  std::string unread;
  for (const fs::path& path : files_) {
    if (read_file(path).find(name) == std::string::npos) continue;
    try {
      TaskFile file = read_with_includes(path, 0);
      const std::vector<std::string> tags = words_of(file, "tag");
      if (file.config.value("group", Json()) == Json(name))
        found.groups.push_back(std::move(file));
      else if (is_task_of(file, name))
        found.tasks.push_back(std::move(file));
      else if (std::find(tags.begin(), tags.end(), name) != tags.end() && file.config.contains("task"))
        found.tagged.push_back(std::move(file));
    } catch (const UserError& error) {
      if (unread.empty() && path.stem() == name) unread = error.what();
    }
  }
  if (found.tasks.empty() && found.groups.empty() && found.tagged.empty() && !unread.empty())
    throw UserError(unread, ExitCode::kBadData);
  return found;
}

std::vector<TaskFile> TaskFiles::of_group(const TaskFile& group, int depth, Problems& problems) {
  std::vector<TaskFile> tasks;
  const Json members = group.config.value("task", Json());
  for (const Json& member : members.is_array() ? members : Json::array({members})) {
    if (!member.is_string()) {
      problems.add(group.place("task"), ": task: a group of anything but names of tasks is not supported");
      continue;
    }
    for (TaskFile& task : find(member.get<std::string>(), depth + 1, problems)) tasks.push_back(std::move(task));
  }
  return tasks;
}

std::vector<TaskFile> TaskFiles::find(const std::string& name, int depth, Problems& problems) {
  Found found;
  try {
    if (depth > kDeepestInclude) throw UserError(concat("group ", name, " contains itself"), ExitCode::kBadData);
    found = look_for(name);
  } catch (const UserError& error) {
    problems.add(error.what());
    return {};
  }
  if (!found.groups.empty()) return of_group(found.groups[0], depth, problems);
  if (!found.tasks.empty()) return {found.tasks[0]};
  if (found.tagged.empty()) problems.add("--tasks ", name, ": no task, group or tag of the files in ", root_.string());
  return found.tagged;
}

std::vector<TaskFile> TaskFiles::find(const std::string& name, Problems& problems) { return find(name, 0, problems); }

}  // namespace espalier::eval
