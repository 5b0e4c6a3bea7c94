// A command of the user that copies a file to where cp cannot, such as an object store, and back.
//
// sh runs it with {source} and {target} replaced, then again with both exchanged: what comes back must be equal. An
// object store may take a file and keep something else.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/error.h"

namespace espalier {

// Runs a command for sh, whose output goes to `log`. A UserError with its last words where it fails.
void run_command(const std::string& command, const std::filesystem::path& log);

uint64_t hash_of_file(const std::filesystem::path& path);

class CopyCommand {
 public:
  explicit CopyCommand(std::string command) : command_(std::move(command)) {}
  // What is wrong with the option --with.
  static void check(const std::string& command, Problems& problems);

  // `scratch`, a folder, has the command's output and what comes back.
  void put(const std::filesystem::path& source, const std::string& target, const std::filesystem::path& scratch) const;

 private:
  std::string command_;
};

}  // namespace espalier
