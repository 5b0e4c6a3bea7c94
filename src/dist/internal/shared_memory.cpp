#include "dist/internal/shared_memory.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "base/error.h"

namespace espalier::dist {
namespace {

// In front of the data: the number of the address.
constexpr size_t kHeaderBytes = 4096;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(concat(what, ": ", std::strerror(errno))); }

uint64_t random_number() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

SharedMemory::SharedMemory(int descriptor, size_t bytes) : descriptor_(descriptor), bytes_(bytes) {
  void* const mapping = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  if (mapping == MAP_FAILED) {
    const int reason = errno;
    ::close(descriptor);
    errno = reason;
    fail(concat("cannot map ", bytes, " bytes of shared memory"));
  }
  mapping_ = static_cast<char*>(mapping);
  data_ = mapping_ + kHeaderBytes;
}

SharedMemory SharedMemory::create(size_t bytes) {
  const int descriptor = ::memfd_create("espalier", MFD_CLOEXEC);
  if (descriptor < 0) fail("cannot create shared memory");
  if (::ftruncate(descriptor, static_cast<off_t>(kHeaderBytes + bytes)) != 0) {
    const int reason = errno;
    ::close(descriptor);
    errno = reason;
    fail(concat("cannot size shared memory to ", bytes, " bytes"));
  }
  SharedMemory memory(descriptor, kHeaderBytes + bytes);
  const uint64_t proof = random_number();
  std::memcpy(memory.mapping_, &proof, sizeof proof);
  memory.address_ = concat(::getpid(), " ", descriptor, " ", kHeaderBytes + bytes, " ", proof);
  return memory;
}

SharedMemory SharedMemory::open(const std::string& address) {
  std::istringstream words(address);
  int64_t process = 0, number = 0, bytes = 0;
  uint64_t proof = 0;
  words >> process >> number >> bytes >> proof;
  ESPALIER_CHECK(words && bytes > static_cast<int64_t>(kHeaderBytes), "shared memory at '", address, "'");
  const std::string path = concat("/proc/", process, "/fd/", number);
  // What is there may be anything where the number is another machine's: a pipe would block.
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail(concat("cannot open ", path));
  struct stat status;
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size != bytes) {
    ::close(descriptor);
    throw std::runtime_error(concat(path, " is not the memory that another process shares"));
  }
  SharedMemory memory(descriptor, static_cast<size_t>(bytes));
  uint64_t found = 0;
  std::memcpy(&found, memory.mapping_, sizeof found);
  if (found != proof) throw std::runtime_error(concat(path, " is not the memory that another process shares"));
  memory.address_ = address;
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(mapping_, other.mapping_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(address_, other.address_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (mapping_ != nullptr) ::munmap(mapping_, bytes_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

// Locks of an open file description: the kernel releases them with its last descriptor, also after SIGKILL.
void SharedMemory::claim(int64_t index) const {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = index;
  lock.l_len = 1;
  if (::fcntl(descriptor_, F_OFD_SETLK, &lock) != 0) fail(concat("cannot lock byte ", index, " of shared memory"));
}

bool SharedMemory::is_claimed_by_another(int64_t index) const {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = index;
  lock.l_len = 1;
  if (::fcntl(descriptor_, F_OFD_GETLK, &lock) != 0) fail("cannot read the locks of shared memory");
  return lock.l_type != F_UNLCK;
}

// Either the listener sees the new number before it sleeps, or the ringer sees that it sleeps.
void Bell::ring() {
  rings_.fetch_add(1, std::memory_order_seq_cst);
  if (sleeping_.load(std::memory_order_seq_cst) != 0) ::syscall(SYS_futex, &rings_, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void Bell::sleep(uint32_t heard, std::chrono::microseconds longest) {
  sleeping_.store(1, std::memory_order_seq_cst);
  const timespec limit{static_cast<time_t>(longest.count() / 1'000'000),
                       static_cast<long>(longest.count() % 1'000'000 * 1000)};
  ::syscall(SYS_futex, &rings_, FUTEX_WAIT, heard, &limit, nullptr, 0);
  sleeping_.store(0, std::memory_order_relaxed);
}

}  // namespace espalier::dist
