#include "train/held_folder.h"

#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace espalier::train {
namespace {

namespace fs = std::filesystem;

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
  lock_.emplace(folder_);
}

HeldFolder::~HeldFolder() {
  if (!kept_ && first_created_) remove_what_was_created();
}

void HeldFolder::remove_what_was_created() {
  std::error_code error;
  // The lock, and what is empty; anything else is worth keeping.
  for (fs::directory_iterator entry(folder_, error), last; !error && entry != last; entry.increment(error)) {
    std::error_code ignored;
    if (entry->path().filename().string().starts_with(".lock") || fs::is_empty(entry->path(), ignored))
      fs::remove(entry->path(), ignored);
  }
  remove_empty_folders(folder_, *first_created_);
}

void HeldFolder::keep(std::string config_toml, std::string command_line) {
  kept_ = true;
  config_toml_ = std::move(config_toml);
  command_line_ = std::move(command_line);
  write_options();
}

void HeldFolder::write_options() const {
  write_file_atomically(folder_ / "config.toml", config_toml_);
  write_file_atomically(folder_ / "command.txt", command_line_);
}

bool HeldFolder::is_gone() const {
  std::error_code error;
  return kept_ && !fs::exists(folder_ / "config.toml", error);
}

bool HeldFolder::restore() {
  lock_.reset();  // what it locked may be a file without a name
  try {
    lock_ = store::RunLock::take_if_free(folder_);
    if (lock_) write_options();
  } catch (const UserError& error) {
    warn_once(concat("'", folder_.string(), "' was removed while this run used it, and cannot be made again: ",
                     error.what(), ". Training goes on and tries at every step; nothing can be saved until it works."));
    return false;
  }
  if (!lock_)
    throw UserError(concat("'", folder_.string(),
                           "' was removed while this run used it, and another run is in its place. "
                           "Two runs in one folder would spoil each other's checkpoints; this one ends."),
                    ExitCode::kCannotCreate);
  return true;
}

}  // namespace espalier::train
