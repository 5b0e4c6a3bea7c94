#include "convert/partial_folder.h"

#include "base/error.h"
#include "base/file.h"

namespace espalier::convert {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockName = ".lock";

[[noreturn]] void refuse(const std::string& what) { throw UserError(what, ExitCode::kCannotCreate); }

void check_target(const fs::path& target) {
  if (fs::exists(target) && !fs::is_directory(target))
    refuse(concat("'", target.string(), "' is a file; nothing is overwritten. Give a new folder."));
  if (fs::exists(target) && !fs::is_empty(target))
    refuse(concat("'", target.string(), "' exists and is not empty; nothing is overwritten. Give a new folder."));
}

}  // namespace

PartialFolder::PartialFolder(const fs::path& target)
    : target_(fs::absolute(target).lexically_normal()), partial_(target_) {
  if (!target_.has_filename()) target_ = partial_ = target_.parent_path();
  partial_ += ".partial";
  check_target(target_);
  if (fs::exists(partial_) && !fs::exists(partial_ / kLockName))
    refuse(
        concat("'", partial_.string(), "' exists, and was not left by an unfinished conversion. Remove or move it."));
  lock_ = store::RunLock::take_if_free(partial_);
  if (!lock_) refuse(concat("'", partial_.string(), "' is being written by another process"));
  for (const fs::directory_entry& entry : fs::directory_iterator(partial_))
    if (!entry.path().filename().string().starts_with(kLockName)) fs::remove_all(entry.path());  // .lock.owner too
}

PartialFolder::~PartialFolder() {
  std::error_code ignored;  // it stays, and the next attempt removes it
  if (!committed_) fs::remove_all(partial_, ignored);
}

void PartialFolder::commit() {
  check_target(target_);
  fs::remove(partial_ / kLockName);
  lock_.reset();  // where it is a file of its own it must not travel
  fsync_directory(partial_);
  std::error_code error;
  fs::rename(partial_, target_, error);
  if (error) refuse(concat("cannot rename '", partial_.string(), "' to '", target_.string(), "': ", error.message()));
  committed_ = true;
  fsync_directory(target_.parent_path());
}

}  // namespace espalier::convert
