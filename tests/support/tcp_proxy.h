// A TCP proxy on 127.0.0.1 that delays what it passes on, and cuts all connections when it is told to.
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
  TcpProxy(int target_port, std::chrono::milliseconds delay) : target_port_(target_port), delay_(delay) {
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
      const int target = connect_to_target();
      if (target < 0) {
        ::close(client);
        continue;
      }
      ++num_connections_;
      const std::lock_guard lock(mutex_);
      sockets_.push_back(client), sockets_.push_back(target);
      pumps_.emplace_back([=, this] { pump(client, target); });
      pumps_.emplace_back([=, this] { pump(target, client); });
    }
  }
  // Waits until somebody listens there; -1 once it is cut.
  int connect_to_target() const {
    const sockaddr_in address = at(target_port_);
    while (!ends_ && !is_cut_) {
      const int target = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (::connect(target, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return target;
      ::close(target);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return -1;
  }
  void pump(int from, int to) const {
    char buffer[65536];
    for (ssize_t got; (got = ::read(from, buffer, sizeof buffer)) > 0;) {
      std::this_thread::sleep_for(delay_);
      for (ssize_t sent = 0; sent < got;) {
        const ssize_t now = ::send(to, buffer + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
        if (now <= 0) return;
        sent += now;
      }
    }
    ::shutdown(to, SHUT_WR);
  }

  const int target_port_;
  const std::chrono::milliseconds delay_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> ends_{false}, is_cut_{false};
  std::atomic<int64_t> num_connections_{0};
  std::mutex mutex_;
  std::vector<int> sockets_;
  std::vector<std::thread> pumps_;
  std::thread thread_;
};

}  // namespace espalier::test
