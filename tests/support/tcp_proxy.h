// A TCP proxy on 127.0.0.1 that delays what it passes on, doubles it, and cuts all connections when it is told to.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace espalier::test {

class TcpProxy {
 public:
  struct Options {
    int target_port = 0;  // 0: the first two bytes of each connection name it (planted_faults.cpp)
    std::chrono::milliseconds delay{0};
    // Each connection is made twice, with the same bytes; what the second one is answered goes nowhere.
    bool doubles_connections = false;
    // From this many bytes of a connection on, what comes from its client is passed on twice; -1: never.
    int64_t doubles_data_after = -1;
  };

  TcpProxy(int target_port, std::chrono::milliseconds delay)
      : TcpProxy(Options{.target_port = target_port, .delay = delay}) {}
  explicit TcpProxy(const Options& options) : options_(options), doubles_data_after_(options.doubles_data_after) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = at(0);
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    ::listen(listener_, 64);
    socklen_t size = sizeof address;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { accept_all(); });
  }
  ~TcpProxy() {
    ends_ = true;
    cut();
    thread_.join();
    for (std::thread& pump : pumps_) pump.join();
    for (const int socket : sockets_) ::close(socket);
    ::close(listener_);
  }
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  int port() const { return port_; }
  int64_t num_connections() const { return num_connections_; }
  int64_t num_doubled() const { return num_doubled_; }  // pieces of data
  // What comes from clients is passed on twice from now on.
  void double_data() { doubles_data_after_ = 0; }
  // As a network that goes away: no connection lives on, and none is made.
  void cut() {
    is_cut_ = true;
    const std::lock_guard lock(mutex_);
    for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
  }

 private:
  static sockaddr_in at(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  void accept_all() {
    while (!ends_) {
      pollfd ready = {listener_, POLLIN, 0};
      if (::poll(&ready, 1, 50) <= 0) continue;
      const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0) continue;
      keep(client);
      pumps_.emplace_back([=, this] { serve(client); });
    }
  }
  void serve(int client) {
    int port = options_.target_port;
    if (port == 0) {
      uint16_t named = 0;
      if (::recv(client, &named, sizeof named, MSG_WAITALL) != sizeof named) named = 0;
      port = ntohs(named);
    }
    const int target = connect_to(port), twin = options_.doubles_connections ? connect_to(port) : -1;
    if (twin >= 0) keep(twin);
    if (target < 0) {
      ::shutdown(client, SHUT_RDWR);
      return;
    }
    ++num_connections_;
    keep(target);
    std::thread back([=, this] { pump(target, client, -1, false); });
    std::thread swallow([twin] {
      char buffer[4096];
      while (twin >= 0 && ::read(twin, buffer, sizeof buffer) > 0) {
      }
    });
    pump(client, target, twin, true);
    back.join();
    if (twin >= 0) ::shutdown(twin, SHUT_RDWR);
    swallow.join();
  }
  void keep(int socket) {
    const std::lock_guard lock(mutex_);
    sockets_.push_back(socket);
    if (is_cut_) ::shutdown(socket, SHUT_RDWR);
  }
  // Waits until somebody listens there; -1 once it is cut.
  int connect_to(int port) const {
    const sockaddr_in address = at(port);
    while (!ends_ && !is_cut_ && port != 0) {
      const int target = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (::connect(target, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return target;
      ::close(target);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return -1;
  }
  static bool send_all(int to, const char* data, ssize_t size) {
    for (ssize_t sent = 0; sent < size;) {
      const ssize_t now = ::send(to, data + sent, static_cast<size_t>(size - sent), MSG_NOSIGNAL);
      if (now <= 0) return false;
      sent += now;
    }
    return true;
  }
  void pump(int from, int to, int twin, bool is_from_client) {
    char buffer[65536];
    int64_t passed = 0;
    for (ssize_t got; (got = ::read(from, buffer, sizeof buffer)) > 0; passed += got) {
      std::this_thread::sleep_for(options_.delay);
      if (!send_all(to, buffer, got)) return;
      if (twin >= 0 && !send_all(twin, buffer, got)) twin = -1;
      if (const int64_t after = doubles_data_after_; is_from_client && after >= 0 && passed >= after) {
        ++num_doubled_;
        if (!send_all(to, buffer, got)) return;
      }
    }
    ::shutdown(to, SHUT_WR);
  }

  const Options options_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> ends_{false}, is_cut_{false};
  std::atomic<int64_t> doubles_data_after_, num_connections_{0}, num_doubled_{0};
  std::mutex mutex_;
  std::vector<int> sockets_;
  std::vector<std::thread> pumps_;
  std::thread thread_;
};

}  // namespace espalier::test
