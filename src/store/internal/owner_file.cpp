#include "store/internal/owner_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/sha256.h"

namespace espalier::store {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::string first_line(const char* path) {
  try {
    const std::string content = read_file(path);
    return content.substr(0, content.find('\n'));
  } catch (const UserError&) {
    return "";
  }
}

// When a process began, "" where there is none of that number. Field 22 of its stat; the name before it may hold
// anything, also brackets.
std::string start_of(int64_t process) {
  const std::string stat = first_line(concat("/proc/", process, "/stat").c_str());
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return "";
  std::istringstream fields(stat.substr(name_end + 1));
  std::string field;
  for (int number = 3; number <= 22; ++number) fields >> field;
  return field;
}

std::string process_space() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/ns/pid", ignored).string();
}

// The time of the last renewal by the file system's clock, nullopt when the file is gone.
std::optional<milliseconds> renewal_of(const fs::path& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return milliseconds(int64_t{status.st_mtim.tv_sec} * 1000 + status.st_mtim.tv_nsec / 1'000'000);
}

std::optional<std::string> owner_content(const fs::path& path) {
  try {
    return read_file(path);
  } catch (const UserError& error) {
    if (error.code() == ExitCode::kMissingInput) return std::nullopt;
    throw;
  }
}

[[noreturn]] void fail_owner(const char* operation, const fs::path& path) {
  throw UserError(concat("cannot ", operation, " '", path.string(), "': ", std::strerror(errno)),
                  ExitCode::kCannotCreate);
}

// The descriptor, or -1 where the file exists already. It is whole from the first moment: written under a name of its
// own, then linked, which only one can.
int create_whole(const fs::path& path, const std::string& content, const std::string& token) {
  const fs::path own = path.string() + ".new-" + token;
  const int descriptor = ::open(own.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) fail_owner("create", own);
  const bool written = ::write(descriptor, content.data(), content.size()) == static_cast<ssize_t>(content.size());
  bool linked = written && ::link(own.c_str(), path.c_str()) == 0;
  int error = errno;
  // A network file system may do it and lose the answer; one without links creates the file as only one can.
  struct stat status;
  if (written && !linked && ::fstat(descriptor, &status) == 0) linked = status.st_nlink == 2;
  ::unlink(own.c_str());
  if (linked) return descriptor;
  ::close(descriptor);
  if (written && (error == EPERM || error == EOPNOTSUPP || error == ENOSYS)) {
    const int created = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    error = errno;
    if (created >= 0 && ::write(created, content.data(), content.size()) == static_cast<ssize_t>(content.size()))
      return created;
    if (created >= 0) ::close(created);
  }
  if (error == EEXIST) return -1;
  errno = error;
  fail_owner("create", path);
}

enum class Holder { kAlive, kGone, kUnknown };

Holder look_up(const OwnerRecord& record, const OwnerRecord& self) {
  if (record.boot.empty() || record.boot != self.boot || record.process_space != self.process_space)
    return Holder::kUnknown;
  const std::string start = start_of(record.process);
  return start.empty() || start != record.process_start ? Holder::kGone : Holder::kAlive;
}

// Waits for a renewal; a holder that nothing else vouches for is gone when none comes.
Holder watch(const fs::path& path, const std::string& content, const OwnerRecord& record, const OwnerTimes& times) {
  log_info("waiting up to ", format_duration(std::chrono::duration<double>(times.patience).count()), " to see whether ",
           record.text, " still holds '", path.parent_path().string(), "'");
  const auto first = renewal_of(path);
  const Clock::time_point end = Clock::now() + times.patience;
  while (Clock::now() < end) {
    std::this_thread::sleep_for(std::min<milliseconds>(times.renew / 4, milliseconds(500)));
    if (renewal_of(path) != first || owner_content(path) != content) return Holder::kAlive;  // or the next one's
  }
  return Holder::kGone;
}

// What is known of the holder of `path`, which holds `content`.
Holder judge(const fs::path& path, const std::string& content, const OwnerRecord& self, const OwnerTimes& times) {
  const OwnerRecord record = OwnerRecord::parse(content);
  const Holder holder = look_up(record, self);
  return holder == Holder::kUnknown ? watch(path, content, record, times) : holder;
}

// Gets `path`, whose holder is gone and which held `content` then, out of the way; false when another taker is about
// it. What is there may have become somebody else's meanwhile. So only one may touch it: who makes the file that is
// named after that content, which no later holder has. A taker that died with that file is gone in the same way.
bool remove_stale(const fs::path& path, const std::string& content, const OwnerRecord& self, const OwnerTimes& times) {
  const fs::path right = concat(path.string(), ".taking-", hex64(hash64(content)));
  const int descriptor = create_whole(right, self.to_text(), self.token);
  if (descriptor < 0) {
    const std::optional<std::string> taker = owner_content(right);
    if (taker && judge(right, *taker, self, times) == Holder::kGone) remove_stale(right, *taker, self, times);
    return false;
  }
  ::close(descriptor);
  const bool is_the_one = owner_content(path) == content;
  if (is_the_one) ::unlink(path.c_str());
  ::unlink(right.c_str());
  return is_the_one;
}

}  // namespace

OwnerRecord OwnerRecord::of_this_process(const std::string& text) {
  return {.boot = first_line("/proc/sys/kernel/random/boot_id"),
          .process_space = espalier::store::process_space(),
          .token = hex_digits(random_bytes(16)),
          .process = ::getpid(),
          .process_start = start_of(::getpid()),
          .text = text};
}

std::string OwnerRecord::to_text() const {
  return concat("boot ", boot, "\nspace ", process_space, "\nprocess ", process, "\nstart ", process_start, "\ntoken ",
                token, "\nholder ", text, "\n");
}

OwnerRecord OwnerRecord::parse(const std::string& content) {
  OwnerRecord record;
  std::istringstream lines(content);
  for (std::string line; std::getline(lines, line);) {
    const size_t space = std::min(line.find(' '), line.size());
    const std::string key = line.substr(0, space), value = line.substr(std::min(space + 1, line.size()));
    if (key == "boot") record.boot = value;
    if (key == "space") record.process_space = value;
    if (key == "process") record.process = std::atoll(value.c_str());
    if (key == "start") record.process_start = value;
    if (key == "token") record.token = value;
    if (key == "holder") record.text = value;
  }
  if (record.text.empty()) record.text = "a process that has not given its name";
  return record;
}

std::unique_ptr<OwnerFile> OwnerFile::take_if_free(const fs::path& path, const std::string& text,
                                                   const OwnerTimes& times) {
  const OwnerRecord self = OwnerRecord::of_this_process(text);
  for (int attempt = 0; attempt < 8; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(milliseconds(5));  // others are about it
    const std::string content = self.to_text();
    if (const int descriptor = create_whole(path, content, self.token); descriptor >= 0)
      return std::unique_ptr<OwnerFile>(new OwnerFile(path, content, descriptor, times.renew));
    const std::optional<std::string> held = owner_content(path);
    if (!held) continue;  // let go since
    if (judge(path, *held, self, times) == Holder::kAlive) return nullptr;
    if (remove_stale(path, *held, self, times))
      log_info("the lock of ", OwnerRecord::parse(*held).text, " no longer has an owner: it is taken over");
  }
  return nullptr;  // others take it again and again
}

OwnerFile::OwnerFile(fs::path path, std::string content, int descriptor, milliseconds renew)
    : path_(std::move(path)), content_(std::move(content)), descriptor_(descriptor), renew_(renew) {
  sigset_t all, before;  // the program's own threads handle signals
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { keep_alive(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

OwnerFile::~OwnerFile() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
  if (is_ours()) ::unlink(path_.c_str());
  ::close(descriptor_);
}

bool OwnerFile::is_ours() const {
  try {
    return owner_content(path_) == content_;
  } catch (const UserError&) {
    return false;
  }
}

void OwnerFile::keep_alive() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, renew_, [this] { return ending_; })) {
    // The file system sets the time: a machine whose clock is wrong renews as well as any.
    const bool renewed = ::pwrite(descriptor_, content_.data(), 1, 0) == 1 && ::fsync(descriptor_) == 0;
    if (!renewed || !is_ours())
      warn_once(concat("'", path_.string(),
                       "' can no longer be renewed or belongs to another process: another run may "
                       "write into this folder"));
  }
}

}  // namespace espalier::store
