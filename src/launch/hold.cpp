#include "launch/hold.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/whereabouts.h"
#include "launch/internal/number.h"
#include "launch/internal/protocol.h"
#include "launch/snapshot_memory.h"

namespace espalier::launch {
namespace {

using internal::Clock;
using internal::MessageReader;
using internal::MessageWriter;
using internal::Transfer;

constexpr char kOffered = 'o', kHeld = 'h';
constexpr auto kTimeToTell = std::chrono::seconds(5);
constexpr int64_t kMostEnvironmentBytes = int64_t{16} << 20;

// Of this process.
int descriptor = -1;
std::atomic<bool> is_offered{false};

void say(char what) {
  const ssize_t sent = send(descriptor, &what, 1, MSG_NOSIGNAL);
  static_cast<void>(sent);  // the launcher is gone, and ends this process
}

}  // namespace

HoldLine::HoldLine() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw UserError(concat("no connection to a rank: ", std::strerror(errno)));
  own_ = internal::Descriptor(ends[0]), rank_ = internal::Descriptor(ends[1]);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
}

std::string HoldLine::variable() const { return std::to_string(rank_.get()); }

void HoldLine::hear() {
  char heard[16];
  while (own_.valid()) {
    const ssize_t got = recv(own_.get(), heard, sizeof heard, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    for (ssize_t at = 0; at < got; ++at) (heard[at] == kHeld ? is_held_ : is_offered_) = true;
  }
}

bool HoldLine::is_offered() {
  hear();
  return own_.valid() && is_offered_;
}

bool HoldLine::is_held() {
  hear();
  return own_.valid() && is_held_;
}

bool HoldLine::start(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> list;
  for (const auto& [name, value] : variables) list.push_back(name), list.push_back(value);
  MessageWriter message, size;
  message.list(list);
  size.number(std::ssize(message.text()));
  is_offered_ = is_held_ = false;
  return internal::send_all(own_.get(), size.text() + message.text(), Clock::now() + kTimeToTell) == Transfer::kDone;
}

void open_hold() {
  const char* const text = std::getenv(kHoldVariable);
  if (text == nullptr) return;
  const auto number = parse_whole(text);
  unsetenv(kHoldVariable);  // not for what this process starts
  if (number && fcntl(static_cast<int>(*number), F_SETFD, FD_CLOEXEC) == 0) descriptor = static_cast<int>(*number);
}

void offer_to_be_held() {
  if (descriptor < 0 || is_offered.exchange(true)) return;
  say(kOffered);
}

bool may_be_held() { return is_offered; }

bool is_given_up() {
  pollfd entry = {descriptor, POLLRDHUP, 0};
  return poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

bool wait_for_next_start() {
  set_phase(RunPhase::kStart, 0);
  const WaitsFor waits(Waiting::kOthers, "the next start", "the run");
  is_offered = false;
  lose_peers(false);
  say(kHeld);
  const auto receive = [](size_t size) {
    std::string text(size, '\0');
    return internal::receive_all(descriptor, text.data(), size, Clock::time_point::max()) == Transfer::kDone ? text
                                                                                                             : "";
  };
  const std::string size_text = receive(8);
  if (size_text.empty()) return false;
  const int64_t size = MessageReader(size_text).number();
  if (size < 0 || size > kMostEnvironmentBytes) return false;
  const std::string text = receive(static_cast<size_t>(size));
  MessageReader message(text);
  const std::vector<std::string> list = message.list();
  if (!message.at_end()) return false;
  const std::set<std::string> known = {kWhereaboutsVariable, kSnapshotsVariable, kHoldVariable};  // opened long ago
  for (size_t at = 0; at + 1 < list.size(); at += 2)
    if (!known.contains(list[at])) setenv(list[at].c_str(), list[at + 1].c_str(), 1);
  return true;
}

}  // namespace espalier::launch
