#include "launch/internal/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/format.h"
#include "base/host_name.h"
#include "base/log.h"

namespace espalier::launch::internal {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string& address, int port, bool passive, std::string& reason) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.empty() ? nullptr : address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) reason = error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error);
  return {error == 0 ? found : nullptr, freeaddrinfo};
}

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
}

// True once the socket is ready for `events`; false when the deadline passed.
bool wait_for(int socket, short events, Clock::time_point deadline) {
  while (true) {
    pollfd entry = {socket, events, 0};
    const int ready = poll(&entry, 1, milliseconds_until(deadline));
    if (ready > 0) return true;
    if (ready == 0 && Clock::now() >= deadline) return false;
  }
}

Descriptor try_address(const addrinfo& address, Clock::time_point deadline, std::string& reason) {
  Descriptor socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) {
    reason = std::strerror(errno);
    return {};
  }
  int error = 0;
  if (connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) {
    error = errno;
    if (error == EINPROGRESS) {
      socklen_t size = sizeof error;
      error = ETIMEDOUT;
      if (wait_for(socket.get(), POLLOUT, deadline)) getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
  }
  if (error != 0) {
    reason = std::strerror(error);
    return {};
  }
  prepare_connection(socket.get());
  return socket;
}

Descriptor listen_at(const addrinfo& address, std::string& reason, int& error) {
  Descriptor socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1, off = 0;
  if (socket.valid()) {
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address.ai_family == AF_INET6) setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(socket.get(), address.ai_addr, address.ai_addrlen) == 0 && listen(socket.get(), 4096) == 0) return socket;
  }
  error = errno;
  reason = std::strerror(errno);
  return {};
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(value_, other.value_);
  return *this;
}

void Descriptor::reset() {
  if (value_ >= 0) close(value_);
  value_ = -1;
}

void prepare_connection(int socket) {
  const int on = 1, idle_seconds = 30, interval_seconds = 10, probes = 3;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof idle_seconds);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval_seconds, sizeof interval_seconds);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

namespace {

std::string in_numbers(const sockaddr* address, socklen_t size) {
  char host[NI_MAXHOST];
  return getnameinfo(address, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0 ? host : "";
}

std::string address_of_interface(const char* name) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all(list, freeifaddrs);
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next)
      if (one->ifa_addr != nullptr && one->ifa_addr->sa_family == family && std::strcmp(one->ifa_name, name) == 0)
        return in_numbers(one->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  return "";
}

// Connecting a socket of datagrams sends nothing, and chooses the address to send from.
std::string address_towards(const std::string& host) {
  std::string reason;
  const Addresses addresses = resolve(host, 9, false, reason);
  for (const addrinfo* entry = addresses.get(); entry != nullptr; entry = entry->ai_next) {
    const Descriptor socket(::socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own = {};
    socklen_t size = sizeof own;
    if (socket.valid() && connect(socket.get(), entry->ai_addr, entry->ai_addrlen) == 0 &&
        getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0)
      return in_numbers(reinterpret_cast<sockaddr*>(&own), size);
  }
  return "";
}

}  // namespace

std::string address_for_others(const std::string& host) {
  const char* const interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != 0)
    if (const std::string address = address_of_interface(interface); !address.empty()) return address;
  for (const std::string& towards : {host, host_name()})
    if (const std::string address = address_towards(towards); !address.empty() && !is_loopback(address)) return address;
  if (!is_loopback(host))
    warn_once(concat("no address of this machine was found that ", host,
                     " could reach it at; 127.0.0.1 is told instead, ",
                     "which other machines cannot reach. GLOO_SOCKET_IFNAME names the interface to use"));
  return "127.0.0.1";
}

Descriptor listen_on(const std::string& address, int port, const std::string& purpose) {
  std::string reason;
  int error = 0;
  const Addresses addresses = resolve(address, port, true, reason);
  // IPv6 first: such a socket takes IPv4 as well.
  for (const int family : {AF_INET6, AF_INET})
    for (const addrinfo* entry = addresses.get(); entry != nullptr; entry = entry->ai_next) {
      if (entry->ai_family != family) continue;
      Descriptor socket = listen_at(*entry, reason, error);
      if (socket.valid()) return socket;
      if (error == EADDRINUSE) break;
    }
  const std::string place = port == 0         ? "a free port"
                            : address.empty() ? concat("port ", port)
                                              : concat(address, ":", port);
  throw UserError(concat("cannot ", purpose, " at ", place, ": ", reason,
                         error == EADDRINUSE ? ". Another program listens there: choose another port (MASTER_PORT, "
                                               "--master-port or --rdzv-endpoint), or end that program."
                                             : ""));
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

bool is_local_address(const std::string& address) {
  std::string reason;
  int error = 0;
  const Addresses addresses = resolve(address, 0, false, reason);
  for (const addrinfo* entry = addresses.get(); entry != nullptr; entry = entry->ai_next)
    if (listen_at(*entry, reason, error).valid()) return true;
  return false;
}

int port_of(const Descriptor& socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  ESPALIER_CHECK(getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0, std::strerror(errno));
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

std::string peer_of(int socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "an unknown host";
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "an unknown host";
  return concat(host, ":", port);
}

Descriptor try_to_connect(const std::string& address, int port, Clock::time_point deadline, std::string& reason) {
  const Addresses addresses = resolve(address, port, false, reason);
  for (const addrinfo* entry = addresses.get(); entry != nullptr; entry = entry->ai_next) {
    Descriptor socket = try_address(*entry, deadline, reason);
    if (socket.valid()) return socket;
  }
  return {};
}

Transfer send_all(int socket, std::string_view data, Clock::time_point deadline) {
  while (!data.empty()) {
    const ssize_t sent = send(socket, data.data(), data.size(), MSG_NOSIGNAL);
    if (sent >= 0)
      data.remove_prefix(static_cast<size_t>(sent));
    else if (errno == EAGAIN || errno == EINTR) {
      if (!wait_for(socket, POLLOUT, deadline)) return Transfer::kTimedOut;
    } else
      return Transfer::kClosed;
  }
  return Transfer::kDone;
}

Transfer receive_all(int socket, char* data, size_t size, Clock::time_point deadline) {
  while (size > 0) {
    const ssize_t got = recv(socket, data, size, 0);
    if (got > 0) {
      data += got;
      size -= static_cast<size_t>(got);
    } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (!wait_for(socket, POLLIN, deadline)) return Transfer::kTimedOut;
    } else
      return Transfer::kClosed;
  }
  return Transfer::kDone;
}

}  // namespace espalier::launch::internal
