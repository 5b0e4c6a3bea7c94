// Mapped files, and what happens when one is cut off while it is mapped: reading beyond its end is a SIGBUS, which says
// nothing of a file. The handler looks its address up and names the file.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/internal/open_to_read.h"

namespace espalier {
namespace {

// One mapping. Entries are never freed, so that a handler may walk the list at any time; `begin` is null in those that
// wait to be used again.
struct Mapping {
  std::atomic<const uint8_t*> begin{nullptr};
  size_t size = 0;
  char path[1024] = "";
  Mapping* next = nullptr;
};

std::atomic<Mapping*> mappings{nullptr};
std::mutex mappings_mutex;  // of those who add and remove, not of the handler

void say_on_death(const char* text) {
  const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
  static_cast<void>(written);  // there is nobody else to tell
}

void name_the_file(int number, siginfo_t* info, void* /*context*/) {
  const auto* const at = static_cast<const uint8_t*>(info->si_addr);
  for (const Mapping* entry = mappings.load(); entry != nullptr; entry = entry->next) {
    const uint8_t* const begin = entry->begin.load();
    if (begin == nullptr || at < begin || at >= begin + entry->size) continue;
    say_on_death("error: '");
    say_on_death(entry->path);
    say_on_death(
        "' was cut off, or its disk failed, while it was read. Copy or recreate it, and start again; files in use are "
        "replaced by renaming, not rewritten.\n");
    _exit(static_cast<int>(ExitCode::kInputOutput));
  }
  ::signal(number, SIG_DFL);  // not ours: the access is repeated, and ends the process as it would have
}

void install_handler() {
  struct sigaction before = {};
  if (::sigaction(SIGBUS, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return;
  struct sigaction action = {};
  action.sa_sigaction = name_the_file;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

void enter(const uint8_t* begin, size_t size, const std::string& path) {
  static std::once_flag once;
  std::call_once(once, install_handler);
  const std::lock_guard lock(mappings_mutex);
  Mapping* entry = mappings.load();
  while (entry != nullptr && entry->begin.load() != nullptr) entry = entry->next;
  const bool is_new = entry == nullptr;
  if (is_new) entry = new Mapping;
  entry->size = size;
  std::strncpy(entry->path, path.c_str(), sizeof entry->path - 1);
  entry->begin.store(begin);
  if (!is_new) return;
  entry->next = mappings.load();
  mappings.store(entry);
}

void remove(const uint8_t* begin) {
  const std::lock_guard lock(mappings_mutex);
  for (Mapping* entry = mappings.load(); entry != nullptr; entry = entry->next)
    if (entry->begin.load() == begin) {
      entry->begin.store(nullptr);
      return;
    }
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const int descriptor = internal::open_to_read(path);
  if (descriptor < 0) internal::fail_on_file("open", path);
  struct stat status;
  if (::fstat(descriptor, &status) != 0 || S_ISDIR(status.st_mode)) {
    if (S_ISDIR(status.st_mode)) errno = EISDIR;
    ::close(descriptor);
    internal::fail_on_file("open", path);
  }
  size_ = static_cast<size_t>(status.st_size);
  void* mapping = size_ == 0 ? nullptr : ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor, 0);
  ::close(descriptor);
  if (mapping == MAP_FAILED) internal::fail_on_file("map", path);
  data_ = static_cast<const uint8_t*>(mapping);
  if (data_ != nullptr) enter(data_, size_, path.string());
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  remove(data_);
  ::munmap(const_cast<uint8_t*>(data_), size_);
}

void MappedFile::release() const {
  if (data_ != nullptr)
    ::madvise(const_cast<uint8_t*>(data_), size_, MADV_DONTNEED);  // a hint: what fails does no harm
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace espalier
