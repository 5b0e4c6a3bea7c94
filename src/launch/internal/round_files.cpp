#include "launch/internal/round_files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/sha256.h"

namespace espalier::launch::internal {
namespace {

namespace fs = std::filesystem;

bool any(const StreamRule& rule) {
  if (rule.all != Streams{}) return true;
  for (const auto& [rank, streams] : rule.by_local_rank)
    if (streams != Streams{}) return true;
  return false;
}

std::string replaced(std::string text, const std::string& name, const std::string& value) {
  for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += value.size())
    text.replace(at, name.size(), value);
  return text;
}

std::string prefix_of(const LaunchOptions& options, const Worker& worker) {
  std::string text = replaced(options.line_prefix, "${local_rank}", std::to_string(worker.local_rank));
  text = replaced(text, "${rank}", std::to_string(worker.rank));
  return replaced(text, "${role_name}", options.role);
}

constexpr const char* kPrefix = "espalier_launch_";

fs::path temporary_folder() {
  std::error_code error;
  const fs::path folder = fs::temp_directory_path(error);
  if (error)
    throw UserError(concat("TMPDIR names no folder (", error.message(), "). Set TMPDIR, or --log-dir."),
                    ExitCode::kCannotCreate);
  return folder;
}

// Held as long as the launcher lives. Without a lock where the file system has none.
Descriptor lock_folder(const fs::path& folder) {
  Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (descriptor.valid() && ::flock(descriptor.get(), LOCK_EX | LOCK_NB) != 0) descriptor.reset();
  return descriptor;
}

bool holds_output(const fs::path& folder) {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), last; !error && entry != last; entry.increment(error))
    if (entry->path().extension() == ".log") return true;
  return static_cast<bool>(error);
}

// Of launchers of this user that were killed; not those that hold what ranks wrote.
void remove_leftovers() {
  std::error_code error;
  for (fs::directory_iterator entry(temporary_folder(), error), last; !error && entry != last; entry.increment(error)) {
    struct stat status = {};
    const fs::path& folder = entry->path();
    if (!folder.filename().string().starts_with(kPrefix)) continue;
    if (::lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid()) continue;
    const Descriptor lock = lock_folder(folder);
    std::error_code ignored;
    if (lock.valid() && !holds_output(folder)) fs::remove_all(folder, ignored);
  }
}

}  // namespace

RoundFiles::RoundFiles(const LaunchOptions& options) : options_(options), base_(options.log_dir) {
  is_temporary_ = base_.empty();
  writes_files_ = any(options.redirects) || any(options.tee) || !options.local_ranks_filter.empty();
  if (is_temporary_) {
    remove_leftovers();
    std::string folder = (temporary_folder() / concat(kPrefix, "XXXXXX")).string();
    if (mkdtemp(folder.data()) == nullptr)
      throw UserError(concat("cannot create ", folder, ": ", std::strerror(errno), ". Set TMPDIR, or --log-dir."),
                      ExitCode::kCannotCreate);
    base_ = folder;
    lock_ = lock_folder(base_);
  }
  std::string name = options.run_id;
  for (char& c : name)
    if (c == '/') c = '_';
  run_ = base_ / concat(name, "_", hex_digits(random_bytes(4)));
}

RoundFiles::~RoundFiles() {
  std::error_code error;
  if (!folder_is_kept()) fs::remove_all(base_, error);
}

fs::path RoundFiles::folder_of(int64_t attempt, int64_t local_rank) const {
  return run_ / concat("attempt_", attempt) / std::to_string(local_rank);
}

std::string RoundFiles::error_file(int64_t attempt, int64_t local_rank) const {
  return folder_of(attempt, local_rank) / "error.json";
}

void RoundFiles::make_folder(int64_t attempt, int64_t local_rank) const {
  const fs::path folder = folder_of(attempt, local_rank);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw UserError(concat("cannot create ", folder.string(), ": ", error.message(), ". Choose another --log-dir."),
                    ExitCode::kCannotCreate);
}

void RoundFiles::open(int64_t attempt, Worker& worker, OutputPump& pump) const {
  make_folder(attempt, worker.local_rank);
  const fs::path folder = folder_of(attempt, worker.local_rank);
  const Streams files = options_.redirects.of(worker.local_rank), tees = options_.tee.of(worker.local_rank);
  worker.stdout_to = open_stream(STDOUT_FILENO, files.out, tees.out, worker, pump, folder / "stdout.log");
  worker.stderr_to = open_stream(STDERR_FILENO, files.err, tees.err, worker, pump, folder / "stderr.log");
  if (worker.stderr_to >= 0 && !tees.err) worker.stderr_file = folder / "stderr.log";
}

// -1: the launcher's own stream.
int RoundFiles::open_stream(int number, bool redirected, bool teed, const Worker& worker, OutputPump& pump,
                            const fs::path& file) const {
  const std::set<int64_t>& filter = options_.local_ranks_filter;
  const bool shown = filter.empty() || filter.contains(worker.local_rank);
  if (shown && !redirected && !teed) return -1;
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0)
    throw UserError(concat("cannot write ", file.string(), ": ", std::strerror(errno)), ExitCode::kCannotCreate);
  if (!teed || !shown) return descriptor;
  return pump.add({descriptor, number, prefix_of(options_, worker)});
}

}  // namespace espalier::launch::internal
