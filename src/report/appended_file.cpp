#include "report/appended_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"

namespace espalier::report {

AppendedFile::AppendedFile(std::filesystem::path path, std::string header, Opening opening)
    : path_(std::move(path)), header_(std::move(header)) {
  if (opening == Opening::kNow) open();
}

AppendedFile::~AppendedFile() {
  try_at_end();
  if (descriptor_ >= 0) ::close(descriptor_);
  if (const int64_t lost = num_lost_ + static_cast<int64_t>(waiting_.size()); lost > 0)
    log_warning(format_counted(lost, "record"), " of '", path_.string(), "' could not be written and ",
                lost == 1 ? "is" : "are", " lost");
}

// There may be room again since the last record came.
void AppendedFile::try_at_end() {
  try {
    if (!waiting_.empty() && !is_in_place()) open();
    for (; !waiting_.empty(); waiting_.pop_front()) write(waiting_.front());
  } catch (const UserError&) {  // said when it began
  }
}

void AppendedFile::open() {
  std::error_code error;
  if (path_.has_parent_path()) std::filesystem::create_directories(path_.parent_path(), error);
  const int descriptor = error ? -1 : ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0)
    throw UserError(concat("cannot open '", path_.string(), "': ", error ? error.message() : std::strerror(errno)),
                    ExitCode::kCannotCreate);
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = descriptor;
  struct stat status = {};
  if (!header_.empty() && ::fstat(descriptor_, &status) == 0 && status.st_size == 0) write(header_);
}

bool AppendedFile::is_in_place() const {
  struct stat open = {}, named = {};
  return descriptor_ >= 0 && ::fstat(descriptor_, &open) == 0 && ::stat(path_.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

void AppendedFile::write(const std::string& record) {
  struct stat before = {};
  const bool known = ::fstat(descriptor_, &before) == 0;
  for (size_t done = 0; done < record.size();) {
    const ssize_t count = ::write(descriptor_, record.data() + done, record.size() - done);
    if (count >= 0) {
      done += static_cast<size_t>(count);
      continue;
    }
    if (errno == EINTR) continue;
    const int reason = errno;
    // Half a record would spoil the next one as well.
    if (done > 0 && known && ::ftruncate(descriptor_, before.st_size) != 0)
      log_warning("'", path_.string(), "' has half a record at byte ", before.st_size, ": ", std::strerror(errno));
    throw UserError(concat("cannot write '", path_.string(), "': ", std::strerror(reason)), ExitCode::kInputOutput);
  }
}

void AppendedFile::append(std::string record, std::string if_late) {
  waiting_bytes_ += record.size();
  waiting_.push_back(std::move(record));
  while (waiting_bytes_ > kMostWaitingBytes) {
    waiting_bytes_ -= waiting_.front().size();
    waiting_.pop_front();
    ++num_lost_;
  }
  write_waiting(waiting_.size() - 1);
  if (waiting_.empty() || if_late.empty()) return;
  waiting_bytes_ += if_late.size() - waiting_.back().size();
  waiting_.back() = std::move(if_late);
}

void AppendedFile::give_up() {
  waiting_.clear();
  waiting_bytes_ = 0;
  num_lost_ = 0;
}

void AppendedFile::try_again() {
  if (!waiting_.empty()) write_waiting(waiting_.size());
}

void AppendedFile::write_waiting(size_t num_late) {
  try {
    if (!is_in_place()) {
      const bool was_open = descriptor_ >= 0;
      open();
      if (was_open && !in_trouble_)
        log_warning("'", path_.string(), "' was removed or replaced while this run wrote it: it starts afresh here");
    }
    for (; !waiting_.empty(); waiting_.pop_front()) {
      write(waiting_.front());
      waiting_bytes_ -= waiting_.front().size();
    }
  } catch (const UserError& error) {
    return say_trouble(error.what());
  }
  if (in_trouble_)
    log_warning("'", path_.string(),
                "' can be written again: ", format_counted(static_cast<int64_t>(num_late), "late record"),
                num_late == 1 ? " is in it" : " are in it",
                num_lost_ > 0 ? concat(", the ", num_lost_, " oldest are lost") : "");
  in_trouble_ = false;
  num_lost_ = 0;
}

void AppendedFile::say_trouble(const std::string& reason) {
  if (!in_trouble_)
    log_warning(reason,
                ". Training continues; records wait in memory until they can be written. Make room, or repair the file "
                "system.");
  in_trouble_ = true;
}

}  // namespace espalier::report
