// Notices that an exchange on a device does not end.
//
// On a device an exchange is waited for by the device, not by the process, so that nothing throws when a peer is gone:
// the process is in its next read of a result. This thread looks at the exchanges under way, and calls `lost` once
// when one has failed or has lasted longer than `timeout`.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace c10d {
class Work;
}

namespace espalier::dist {

// Says what has happened, leaves it for the launcher, and ends the process with kLostPeer: the default of DeviceWatch.
[[noreturn]] void end_with_lost_peer(const std::string& message);

class DeviceWatch {
 public:
  using Lost = std::function<void(const std::string& message)>;
  DeviceWatch(at::Device device, std::chrono::milliseconds timeout, Lost lost = end_with_lost_peer);
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  // An exchange of group `group` that has begun.
  void add(const std::string& group, const c10::intrusive_ptr<c10d::Work>& work);

 private:
  struct Exchange {
    std::string group;
    c10::intrusive_ptr<c10d::Work> work;
    std::chrono::steady_clock::time_point begin;
  };
  void watch();
  std::string trouble_of(const Exchange& exchange) const;

  const at::Device device_;
  const std::chrono::milliseconds timeout_;
  const Lost lost_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Exchange> under_way_;
  bool leaving_ = false;
  std::thread thread_;
};

}  // namespace espalier::dist
