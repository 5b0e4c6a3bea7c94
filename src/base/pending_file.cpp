#include "base/pending_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "base/pending_tree.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

// Removes what is in a folder, without memory from the heap: other threads may still be writing there, so it looks
// again until nothing is left, or nothing more can be removed.
void remove_content(int parent, const char* name) {
  const int folder = ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return;
  for (bool removed = true; removed;) {
    removed = false;
    ::lseek(folder, 0, SEEK_SET);
    alignas(dirent64) char buffer[2048];
    for (ssize_t size; (size = ::getdents64(folder, buffer, sizeof buffer)) > 0;) {
      for (ssize_t at = 0; at < size; at += reinterpret_cast<const dirent64*>(buffer + at)->d_reclen) {
        const char* const inner = reinterpret_cast<const dirent64*>(buffer + at)->d_name;
        if (std::strcmp(inner, ".") == 0 || std::strcmp(inner, "..") == 0) continue;
        if (::unlinkat(folder, inner, 0) == 0) {
          removed = true;
          continue;
        }
        remove_content(folder, inner);
        removed = ::unlinkat(folder, inner, AT_REMOVEDIR) == 0 || removed;
      }
    }
  }
  ::close(folder);
}

// What a signal handler has to remove: it may read nothing but this, and no memory is freed that it may be reading.
class Registry {
 public:
  enum class Kind { kFile, kFolder, kTree };
  void add(const fs::path& path, Kind kind) {
    char* const name = ::strdup(path.c_str());
    for (Entry& entry : entries_) {
      char* expected = nullptr;
      if (!entry.reserved.exchange(true)) {
        entry.kind = kind;
        entry.name.compare_exchange_strong(expected, name);
        return;
      }
    }
    std::free(name);  // with that many files pending at once, a signal leaves some behind
  }
  void remove(const fs::path& path) {
    for (Entry& entry : entries_) {
      char* const name = entry.name;
      if (name == nullptr || path != name) continue;
      entry.name = nullptr;  // leaked: the handler may be reading it
      entry.reserved = false;
      return;
    }
  }
  // In a signal handler. Folders last, the innermost first.
  void remove_all() {
    for (const Entry& entry : entries_)
      if (const char* name = entry.name; name != nullptr && entry.kind == Kind::kFile) ::unlink(name);
    for (const Entry& entry : entries_)
      if (const char* name = entry.name; name != nullptr && entry.kind == Kind::kTree) remove_content(AT_FDCWD, name);
    for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry)
      if (const char* name = entry->name; name != nullptr && entry->kind != Kind::kFile) ::rmdir(name);
  }

 private:
  struct Entry {
    std::atomic<bool> reserved = false;
    std::atomic<Kind> kind = Kind::kFile;
    std::atomic<char*> name = nullptr;
  };
  std::array<Entry, 1024> entries_;
};

Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

std::atomic<int> uninterrupted_steps = 0, waiting_signal = 0;

void say(const char* text) {
  if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;  // nobody is left to tell
}

const char* consequence_of_signals = "";

void end_by(int number) {
  registry().remove_all();
  if (stderr_is_terminal()) say("\r\033[K");
  say(number == SIGINT ? "interrupted" : number == SIGTERM ? "ended by SIGTERM" : "ended by SIGHUP");
  say(": ");
  say(consequence_of_signals);
  say("\n");
  struct sigaction plain = {};
  plain.sa_handler = SIG_DFL;
  ::sigaction(number, &plain, nullptr);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, number);
  ::pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  ::raise(number);
}

void handle(int number) {
  const int saved = errno;
  if (uninterrupted_steps > 0)
    waiting_signal = number;
  else
    end_by(number);
  errno = saved;
}

[[noreturn]] void fail(const char* operation, const fs::path& path, int reason) {
  throw UserError(concat("cannot ", operation, " '", path.string(), "': ", std::strerror(reason)),
                  reason == ENOSPC || reason == EIO ? ExitCode::kInputOutput : ExitCode::kCannotCreate);
}

// Takes the lock; false if another process has it.
bool lock(int descriptor, const fs::path& path) {
  while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return false;
    // Some network file systems have no locks.
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    warn_once(concat("files in '", folder.string(), "' cannot be locked (", std::strerror(errno),
                     "): make sure that no other process writes the same output"));
    return true;
  }
  return true;
}

}  // namespace

PendingFile::PendingFile(const fs::path& path) : path_(path), temporary_(path.string() + ".tmp") {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::fifo || type == fs::file_type::socket || type == fs::file_type::character ||
      type == fs::file_type::block)
    throw UserError(concat("'", path.string(), "' is ", kind_of_no_file(type), ", and a file would take its place. ",
                           "Give another name."),
                    ExitCode::kCannotCreate);
  for (;;) {
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (descriptor_ < 0) fail("create", temporary_, errno);
    if (!lock(descriptor_, temporary_)) {
      ::close(descriptor_);
      throw UserError(concat("'", temporary_.string(), "' is being written by another process. Wait until it has ended",
                             ", or give another name for the output."),
                      ExitCode::kCannotCreate);
    }
    // The owner before may have put it into its place, or removed it, between the two calls.
    struct stat held, named;
    const bool same = ::fstat(descriptor_, &held) == 0 && ::stat(temporary_.c_str(), &named) == 0 &&
                      held.st_ino == named.st_ino && held.st_dev == named.st_dev;
    if (same && !S_ISREG(held.st_mode)) {
      ::close(descriptor_);
      fail("write", temporary_, EINVAL);
    }
    if (same) {
      if (held.st_size > 0)
        log_info("'", temporary_.string(), "' (", format_bytes(static_cast<double>(held.st_size)),
                 ") of a run that was killed is replaced");
      break;
    }
    ::close(descriptor_);
  }
  if (::ftruncate(descriptor_, 0) != 0) {
    const int reason = errno;
    ::close(descriptor_);
    fail("write", temporary_, reason);
  }
  registry().add(temporary_, Registry::Kind::kFile);
}

PendingFile::~PendingFile() {
  if (descriptor_ < 0) return;
  ::unlink(temporary_.c_str());
  registry().remove(temporary_);
  ::close(descriptor_);
}

PendingFile::PendingFile(PendingFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

void write_synced(const PendingFile& file, std::string_view content) {
  OutputFile out(file.temporary());
  out.write(content.data(), content.size());
  out.sync();
  out.close();
}

void move_into_place(const std::vector<PendingFile*>& files) {
  const UninterruptedSteps together;
  std::vector<fs::path> folders;
  for (PendingFile* const file : files) {
    if (::rename(file->temporary_.c_str(), file->path_.c_str()) != 0) fail("rename", file->temporary_, errno);
    registry().remove(file->temporary_);
    ::close(std::exchange(file->descriptor_, -1));
    const fs::path folder = file->path_.has_parent_path() ? file->path_.parent_path() : fs::path(".");
    if (std::find(folders.begin(), folders.end(), folder) == folders.end()) folders.push_back(folder);
  }
  for (const fs::path& folder : folders) fsync_directory(folder);
}

PendingFolder::PendingFolder(const fs::path& path) {
  std::error_code error;
  std::vector<fs::path> missing;
  for (fs::path at = path.lexically_normal(); !at.empty() && !fs::exists(at, error); at = at.parent_path())
    if (at.has_filename()) missing.push_back(at);
  std::reverse(missing.begin(), missing.end());
  for (const fs::path& folder : missing) {
    const bool made = fs::create_directory(folder, error);
    if (error) {
      const int reason = error.value();
      for (auto inner = made_.rbegin(); inner != made_.rend(); ++inner) fs::remove(*inner, error);
      for (const fs::path& outer : made_) registry().remove(outer);
      fail("create the folder", folder, reason);
    }
    if (!made) continue;
    made_.push_back(folder);
    registry().add(folder, Registry::Kind::kFolder);
  }
}

PendingFolder::~PendingFolder() {
  for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) ::rmdir(folder->c_str());
  keep();
}

PendingFolder::PendingFolder(PendingFolder&& other) noexcept : made_(std::exchange(other.made_, {})) {}

void PendingFolder::keep() {
  for (const fs::path& folder : made_) registry().remove(folder);
  made_.clear();
}

std::string describe_existing(const std::vector<fs::path>& outputs) {
  std::vector<std::string> found;
  for (const fs::path& path : outputs) {
    std::error_code error;
    if (!fs::exists(path, error)) continue;
    const auto size = fs::is_regular_file(path, error) ? fs::file_size(path, error) : 0;
    found.push_back(concat("'", path.string(), "' (", format_bytes(static_cast<double>(size)), ")"));
  }
  if (found.empty()) return "";
  const bool one = found.size() == 1;
  const std::string last = found.back();
  found.pop_back();
  return concat(join(found, ", "), one ? "" : " and ", last, one ? " exists" : " exist", ". Give another name, or ",
                one ? "replace it" : "replace them", " with --overwrite.");
}

UninterruptedSteps::UninterruptedSteps() { ++uninterrupted_steps; }

UninterruptedSteps::~UninterruptedSteps() {
  if (--uninterrupted_steps == 0)
    if (const int number = waiting_signal.exchange(0); number != 0) end_by(number);
}

PendingTree::PendingTree(const fs::path& path) : folder_(path), path_(path), is_ours_(fs::is_empty(path)) {
  if (is_ours_) registry().add(path_, Registry::Kind::kTree);
}

PendingTree::~PendingTree() {
  if (!is_ours_) return;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, ignored)) fs::remove_all(entry.path(), ignored);
  registry().remove(path_);
}

void clean_up_when_interrupted() { clean_up_when_interrupted("what was begun is being removed"); }

void clean_up_when_interrupted(const char* consequence) {
  consequence_of_signals = consequence;
  registry();
  (void)stderr_is_terminal();  // asked once, outside the handler
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before = {};
    ::sigaction(number, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;  // nohup, and shells' background jobs
    struct sigaction action = {};
    action.sa_handler = handle;
    sigfillset(&action.sa_mask);
    ::sigaction(number, &action, nullptr);
  }
}

}  // namespace espalier
