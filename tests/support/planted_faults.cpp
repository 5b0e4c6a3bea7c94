// Loaded before other libraries (LD_PRELOAD): faults inside a program that knows nothing of them.
//
// A real-time signal, SIGRTMIN + 20, with a value: the thread that takes it, the main one of a process,
//   1          computes for ever           (planted_hang.h: Hang::kBusy)
//   2          sleeps for ever             (Hang::kAsleep)
//   3          takes more and more memory
//   from 10 on sleeps that many milliseconds, once
// PLANTED_SLOW_DISK=MILLISECONDS: each write and sync of a file in a folder "step_..." takes so much longer.
// PLANTED_PROXY=PORT: each TCP connection to another port than MASTER_PORT goes through a proxy at that port of
//   127.0.0.1, which reads the port that was meant from the first two bytes.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

void sleep_ms(long milliseconds) {
  timespec time = {milliseconds / 1000, (milliseconds % 1000) * 1'000'000};
  while (nanosleep(&time, &time) != 0 && errno == EINTR) {
  }
}

void take(int, siginfo_t* info, void*) {
  const int kept = errno, value = info->si_value.sival_int;
  if (value == 1) {
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 19);  // others share the machine
    while (true) asm volatile("" ::: "memory");
  }
  while (value == 3) {
    constexpr size_t kBytes = size_t{16} << 20;
    void* const at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) _exit(1);
    std::memset(at, 1, kBytes);
  }
  while (value == 2) sleep_ms(1'000'000);
  sleep_ms(value);
  errno = kept;
}

[[gnu::constructor]] void install() {
  struct sigaction action = {};
  action.sa_sigaction = take;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGRTMIN + 20, &action, nullptr);
}

long number_in(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atol(text);
}

void wait_for_disk(int descriptor) {
  static const long milliseconds = number_in("PLANTED_SLOW_DISK");
  if (milliseconds <= 0) return;
  char link[64], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t size = readlink(link, path, sizeof path - 1);
  if (size <= 0) return;
  path[size] = 0;
  if (std::strstr(path, "/step_") != nullptr) sleep_ms(milliseconds);
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ssize_t pwrite(int descriptor, const void* data, size_t size, off_t offset) {
  static const auto real = next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  wait_for_disk(descriptor);
  return real(descriptor, data, size, offset);
}

ssize_t pwrite64(int descriptor, const void* data, size_t size, off64_t offset) {
  static const auto real = next<ssize_t(int, const void*, size_t, off64_t)>("pwrite64");
  wait_for_disk(descriptor);
  return real(descriptor, data, size, offset);
}

int fsync(int descriptor) {
  static const auto real = next<int(int)>("fsync");
  wait_for_disk(descriptor);
  return real(descriptor);
}

int connect(int socket, const sockaddr* address, socklen_t size) {
  static const auto real = next<int(int, const sockaddr*, socklen_t)>("connect");
  static const long proxy = number_in("PLANTED_PROXY"), store = number_in("MASTER_PORT");
  if (proxy == 0 || address->sa_family != AF_INET) return real(socket, address, size);
  sockaddr_in target = {};
  std::memcpy(&target, address, sizeof target);
  if (ntohs(target.sin_port) == store) return real(socket, address, size);
  const uint16_t port = target.sin_port;
  target.sin_port = htons(static_cast<uint16_t>(proxy));
  target.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int flags = fcntl(socket, F_GETFL);
  fcntl(socket, F_SETFL, flags & ~O_NONBLOCK);
  const int result = real(socket, reinterpret_cast<const sockaddr*>(&target), sizeof target);
  const int reason = errno;
  const bool is_told = result == 0 && send(socket, &port, sizeof port, MSG_NOSIGNAL) == sizeof port;
  fcntl(socket, F_SETFL, flags);
  errno = reason;
  return is_told ? 0 : -1;
}
}
