// The task files of an installation of lm_eval 0.4, found by the name of a task, a tag or a group, with what they
// include.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "eval/fields.h"

namespace espalier::eval {

// NOLINTNEXTLINE(bugprone-exception-escape): that moving it does not throw is the promise of nlohmann::json
struct TaskFile {
  std::filesystem::path path;
  Json config;                                // its keys over those of the files that it includes
  std::map<std::string, std::string> places;  // "file:line" of each key

  const std::string& place(const std::string& key) const;  // of the file where there is no such key
};

// A folder of such files at any depth, or one file.
class TaskFiles {
 public:
  explicit TaskFiles(std::filesystem::path root);

  // The tasks that `name` stands for: itself, those that have it as a tag, or those of a group, in the order of the
  // harness. What is wrong is added to `problems`.
  std::vector<TaskFile> find(const std::string& name, Problems& problems);

 private:
  struct Found {
    std::vector<TaskFile> tasks, tagged, groups;
  };
  Found look_for(const std::string& name);
  std::vector<TaskFile> of_group(const TaskFile& group, int depth, Problems& problems);
  std::vector<TaskFile> find(const std::string& name, int depth, Problems& problems);

  std::filesystem::path root_;
  std::vector<std::filesystem::path> files_;
};

}  // namespace espalier::eval
