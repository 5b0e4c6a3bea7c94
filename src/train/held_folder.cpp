#include "train/held_folder.h"

#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace espalier::train {
namespace {

namespace fs = std::filesystem;

constexpr const char *kOptionsName = "config.toml", *kCommandName = "command.txt";

std::optional<fs::path> uppermost_missing(fs::path folder) {
  std::optional<fs::path> missing;
  folder = fs::absolute(folder).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  for (std::error_code error; !fs::exists(folder, error) && folder.has_relative_path(); folder = folder.parent_path())
    missing = folder;
  return missing;
}

// The folder and those above it up to `top`, as long as they are empty.
void remove_empty_folders(fs::path folder, const fs::path& top) {
  std::error_code error;
  folder = fs::absolute(folder).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  while (fs::remove(folder, error) && !error && folder != top) folder = folder.parent_path();
}

}  // namespace

HeldFolder::HeldFolder(fs::path folder) : folder_(std::move(folder)), first_created_(uppermost_missing(folder_)) {
  try {
    lock_.emplace(folder_);
  } catch (...) {
    if (first_created_) remove_empty_folders(folder_, *first_created_);
    throw;
  }
}

HeldFolder::~HeldFolder() {
  if (!kept_ && first_created_) remove_what_was_created();
}

void HeldFolder::remove_what_was_created() {
  std::error_code error;
  // The lock, options whose other half could not be written, and what is empty; anything else is worth keeping.
  for (fs::directory_iterator entry(folder_, error), last; !error && entry != last; entry.increment(error)) {
    std::error_code ignored;
    const std::string name = entry->path().filename().string();
    if (name.starts_with(".lock") || name == kOptionsName || name == kCommandName ||
        fs::is_empty(entry->path(), ignored))
      fs::remove(entry->path(), ignored);
  }
  remove_empty_folders(folder_, *first_created_);
}

void HeldFolder::keep(std::string config_toml, std::string command_line) {
  config_toml_ = std::move(config_toml);
  command_line_ = std::move(command_line);
  write_options();
  kept_ = true;
}

void HeldFolder::write_options() const {
  write_file_atomically(folder_ / kOptionsName, config_toml_);
  write_file_atomically(folder_ / kCommandName, command_line_);
}

bool HeldFolder::is_gone() const {
  std::error_code error;
  return kept_ && !fs::exists(folder_ / kOptionsName, error);
}

bool HeldFolder::restore() {
  lock_.reset();  // what it locked may be a file without a name
  try {
    lock_ = store::RunLock::take_if_free(folder_);
    if (lock_) write_options();
  } catch (const UserError& error) {
    warn_once(concat("'", folder_.string(),
                     "' was removed while this run used it, and cannot be recreated: ", error.what(),
                     ". Training continues and tries again at every step; nothing can be saved until it works."));
    return false;
  }
  if (!lock_)
    throw UserError(concat("'", folder_.string(),
                           "' was removed while this run used it, and another run is in its place. Two runs in one "
                           "folder would corrupt each other's checkpoints; this one ends."),
                    ExitCode::kCannotCreate);
  return true;
}

}  // namespace espalier::train
