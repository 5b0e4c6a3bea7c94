// The alerts of `espalier launch --alert-command`: what the launcher meets, what the ranks write into events.jsonl, and
// a loss that no longer moves. An incident, one cause in one attempt of the run, gives one alert.
//
// An alert is a JSON object: time (seconds since 1970), host, run (its folder), attempt (from 0 on), incident
// ("failure", "hang", "suspended", "alert", "straggler", "save failed", "evaluation failed", "hf folder failed", "prune
// failed", "constant loss", "missing metric", "watch died"), step (where it is known), detail.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <thread>

#include "launch/alert_sender.h"
#include "launch/launcher.h"
#include "watch/heartbeat.h"

namespace espalier {

class RunAlerts {
 public:
  // Follows the folder, which need not exist yet, from what it holds now on. Each alert goes to `command`, for sh, and
  // is an event of the run, "alerted"; one that the command does not take is "alert not delivered".
  RunAlerts(const std::string& command, const std::string& run_folder);
  ~RunAlerts();  // sends what waits, ten seconds at most
  RunAlerts(const RunAlerts&) = delete;
  RunAlerts& operator=(const RunAlerts&) = delete;

  void tell(const launch::Incident& incident);  // thread-safe

 private:
  class Lines;
  void follow();
  void read_event(const std::string& line);
  void read_metrics(const std::string& line);
  void look_for_missing(const nlohmann::json& record);
  void forget_records();
  void look_for_watch();
  void raise(const std::string& incident, int64_t step, const std::string& detail);

  const std::filesystem::path folder_;
  launch::AlertSender sender_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ends_ = false, has_cause_ = false;  // of this attempt's failure, already reported
  int64_t attempt_ = 0;
  std::set<std::string> told_;  // in this attempt
  std::string loss_;            // the last one, as written
  int64_t num_equal_losses_ = 0;
  int64_t num_records_ = 0;                    // of steps, in this attempt
  std::map<std::string, int64_t> num_missed_;  // of the keys that all of them had: records in a row without it
  std::unique_ptr<Lines> events_, metrics_;
  watch::HeartbeatWatch heartbeat_;  // of espalier watch, where it watches this run
  bool misses_watch_ = false;
  std::thread thread_;
};

}  // namespace espalier
