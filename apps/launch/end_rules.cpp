#include "apps/launch/end_rules.h"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "base/error.h"

namespace espalier {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(500);

}  // namespace

// The launcher's own thread must not wait for the file system of the kill switch.
EndWatch::EndWatch(const EndRules& rules) : rules_(rules) {
  if (rules_.kill_switch_path.empty()) return;
  sigset_t all, before;  // signals are for the launcher's own thread
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([path = rules_.kill_switch_path, seen = seen_] {
    for (; !seen->ends; std::this_thread::sleep_for(kBetweenLooks)) {
      std::error_code none;
      seen->exists = std::filesystem::exists(path, none);
    }
  }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

EndWatch::~EndWatch() { seen_->ends = true; }

launch::ReasonToEnd EndWatch::reason(double seconds) const {
  if (seen_->exists) return {concat("the kill switch '", rules_.kill_switch_path, "' exists"), /*stays=*/true};
  if (rules_.exit_duration_in_mins && seconds > 60.0 * static_cast<double>(*rules_.exit_duration_in_mins))
    return {concat(*rules_.exit_duration_in_mins, " minutes have passed (--exit-duration-in-mins)"), /*stays=*/false};
  return {};
}

}  // namespace espalier
