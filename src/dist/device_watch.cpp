#include "dist/device_watch.h"

#include <c10/core/DeviceGuard.h>
#include <signal.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "launch/error_file.h"

namespace espalier::dist {
namespace {

constexpr auto kPause = std::chrono::milliseconds(100);

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return first_line(known.what());
  } catch (...) {
    return "an unknown error";
  }
}

}  // namespace

void end_with_lost_peer(const std::string& message) {
  log_line(LogLevel::kQuiet, "error: " + message);
  launch::leave_error_for_launcher(message, static_cast<int>(ExitCode::kLostPeer));
  ::_exit(static_cast<int>(ExitCode::kLostPeer));  // without destructors, which would wait for the device
}

DeviceWatch::DeviceWatch(at::Device device, std::chrono::milliseconds timeout, Lost lost)
    : device_(device), timeout_(timeout), lost_(std::move(lost)) {
  sigset_t all, before;  // the rank's own threads handle signals
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { watch(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

DeviceWatch::~DeviceWatch() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void DeviceWatch::add(const std::string& group, const c10::intrusive_ptr<c10d::Work>& work) {
  const std::lock_guard lock(mutex_);
  under_way_.push_back({group, work, std::chrono::steady_clock::now()});
}

std::string DeviceWatch::trouble_of(const Exchange& exchange) const {
  const std::string what = concat("the exchange with the other processes of group '", exchange.group, "' ");
  const std::string advice = "\nUsually another process has ended: look for the first error among all ranks.";
  if (const std::exception_ptr error = exchange.work->exception()) return what + "failed: " + text_of(error) + advice;
  const auto lasted = std::chrono::steady_clock::now() - exchange.begin;
  if (lasted < timeout_) return "";
  return concat(what, "has not ended after ", format_duration(std::chrono::duration<double>(lasted).count()),
                " (--distributed-timeout-minutes)", advice);
}

void DeviceWatch::watch() {
  // Asking after an event must not make a context on another device.
  const c10::OptionalDeviceGuard guard(device_.is_cpu() ? std::nullopt : std::optional(device_));
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kPause, [this] { return leaving_; })) {
    std::deque<Exchange> taken = std::move(under_way_);
    under_way_.clear();
    lock.unlock();
    std::erase_if(taken,
                  [](const Exchange& exchange) { return exchange.work->isCompleted() && !exchange.work->exception(); });
    std::string trouble;
    for (const Exchange& exchange : taken)
      if (trouble.empty()) trouble = trouble_of(exchange);
    if (!trouble.empty()) return lost_(trouble);
    lock.lock();
    under_way_.insert(under_way_.begin(), taken.begin(), taken.end());
  }
}

}  // namespace espalier::dist
