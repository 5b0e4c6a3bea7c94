// TCP sockets: owned descriptors, listening, connecting with a deadline.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace espalier::launch::internal {

using Clock = std::chrono::steady_clock;

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : value_(other.value_) { other.value_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  int get() const { return value_; }
  bool valid() const { return value_ >= 0; }
  void reset();

 private:
  int value_ = -1;
};

// Bound and listening, does not block. `address`: empty for all of this machine's. Port 0: a free one. UserError if the
// port is taken, or the system has no socket: "cannot <purpose> at port 29500: ...".
Descriptor listen_on(const std::string& address, int port, const std::string& purpose = "listen");
bool is_loopback(const std::string& address);
bool is_local_address(const std::string& address);  // does this machine have it?
int port_of(const Descriptor& socket);
std::string peer_of(int socket);  // "10.0.0.7:41234"

// Small messages go at once, and a machine that vanished is noticed within a minute or so.
void prepare_connection(int socket);

// Of this machine, in numbers, where others reach it: that of the interface GLOO_SOCKET_IFNAME, or the one from which
// this machine reaches `host`, or, where that is itself, the one of its name. 127.0.0.1 if all of that fails,
// with a warning where `host` is another machine.
std::string address_for_others(const std::string& host);

// Not valid() if nobody answers there now; `reason` then says why.
Descriptor try_to_connect(const std::string& address, int port, Clock::time_point deadline, std::string& reason);

enum class Transfer { kDone, kTimedOut, kClosed };
Transfer send_all(int socket, std::string_view data, Clock::time_point deadline);
Transfer receive_all(int socket, char* data, size_t size, Clock::time_point deadline);

}  // namespace espalier::launch::internal
