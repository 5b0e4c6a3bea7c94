#include "apps/launch/run_alerts.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/host_name.h"
#include "base/log.h"
#include "report/events.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr auto kLookAtFiles = std::chrono::milliseconds(500);
// To the last bit: of a healthy run not even two are.
constexpr int64_t kMostEqualLosses = 50;
// Records that all had a key before it is missed, and those in a row without it until it is.
constexpr int64_t kRecordsToExpect = 20, kRecordsToMiss = 10;

// What the ranks write that nobody has asked for. "error" comes before the failure of a rank, which is reported with
// it.
const std::set<std::string>& told_events() {
  static const std::set<std::string> names = {
      "alert", "straggler", "roll back", "save failed", "evaluation failed", "hf folder failed", "prune failed"};
  return names;
}

// Of one cause at several steps or ranks: without its numbers.
std::string cause_of(const std::string& incident, const std::string& detail) {
  std::string cause = incident + ":" + detail.substr(0, 60);
  std::erase_if(cause, [](unsigned char c) { return std::isdigit(c) != 0; });
  return cause;
}

}  // namespace

// The lines that are added to a file, which may not exist yet. Those that no run writes, with values of other types,
// are passed over: the launcher must not end because of one.
class RunAlerts::Lines {
 public:
  explicit Lines(fs::path path) : path_(std::move(path)) {
    std::error_code none;
    const auto size = fs::file_size(path_, none);
    if (!none) read_ = static_cast<std::streamoff>(size);
  }
  template <class Use>
  void read(const Use& use) {
    std::ifstream file(path_, std::ios::binary);
    if (!file || !file.seekg(read_)) return;
    for (std::string line; std::getline(file, line) && !file.eof();) {
      read_ += static_cast<std::streamoff>(line.size()) + 1;
      try {
        use(line);
      } catch (const json::exception&) {
      }
    }
  }

 private:
  fs::path path_;
  std::streamoff read_ = 0;
};

RunAlerts::RunAlerts(const std::string& command, const std::string& run_folder)
    : folder_(run_folder),
      sender_({.command = command,
               .on_delivered =
                   [this](const std::string& alert) {
                     const json told = json::parse(alert);
                     if (fs::exists(folder_))
                       report::record_event(folder_, "alerted", told.value("step", int64_t{-1}),
                                            told.value("incident", "") + ": " + told.value("detail", ""));
                   },
               .on_failure =
                   [this](const std::string& alert, const std::string& why) {
                     log_warning("--alert-command did not accept an alert (", why, "): ", alert);
                     if (fs::exists(folder_))
                       report::record_event(folder_, "alert not delivered", -1, why + ": " + alert);
                   }}),
      events_(std::make_unique<Lines>(folder_ / "events.jsonl")),
      metrics_(std::make_unique<Lines>(folder_ / "metrics.jsonl")),
      thread_([this] { follow(); }) {}

RunAlerts::~RunAlerts() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

void RunAlerts::follow() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  for (bool ends = false; !ends;) {
    std::unique_lock lock(mutex_);
    ended_.wait_for(lock, kLookAtFiles, [&] { return ends_; });
    ends = ends_;  // and one look more
    events_->read([&](const std::string& line) { read_event(line); });
    metrics_->read([&](const std::string& line) { read_metrics(line); });
    look_for_watch();
  }
}

// Of the two that watch a run each tells of the other's death.
void RunAlerts::look_for_watch() {
  const std::string what =
      heartbeat_.look(watch::read_heartbeat(folder_),
                      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count());
  if (!what.empty() && !misses_watch_) raise("watch died", -1, what);
  misses_watch_ = !what.empty();
}

void RunAlerts::read_event(const std::string& line) {
  const json event = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!event.is_object()) return;
  const std::string name = event.value("event", ""), detail = event.value("detail", "");
  const bool is_over = name == "straggler" && detail.find(" keeps up ") != std::string::npos;
  if (told_events().contains(name) && !is_over) raise(name, event.value("step", int64_t{-1}), detail);
}

void RunAlerts::read_metrics(const std::string& line) {
  const json record = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object() || !record.contains("consumed_samples")) return;
  // A step whose update was not made has no norm.
  if (!record.value("skipped", false)) look_for_missing(record);
  for (const auto& [key, value] : record.items()) {
    if (!key.ends_with("_loss") || value.is_null()) continue;  // NaN is null, and an alert of its own
    const std::string loss = value.dump();
    num_equal_losses_ = loss == loss_ ? num_equal_losses_ + 1 : 1;
    loss_ = loss;
    if (num_equal_losses_ == kMostEqualLosses)
      raise("constant loss", record.value("step", int64_t{-1}),
            concat(key, " has been ", loss, " for ", kMostEqualLosses, " steps, to the last bit: nothing is learnt"));
    return;
  }
}

// Of the keys that each record of this attempt had. Losses by data set are of those that a batch happens to read.
void RunAlerts::look_for_missing(const json& record) {
  if (num_records_ < kRecordsToExpect) {
    std::map<std::string, int64_t> found;
    for (const auto& [key, value] : record.items())
      if (!key.ends_with("_by_data_set") && (num_records_ == 0 || num_missed_.contains(key))) found[key] = 0;
    num_missed_ = std::move(found);
    ++num_records_;
    return;
  }
  for (auto& [key, missed] : num_missed_) {
    missed = record.contains(key) ? 0 : missed + 1;
    if (missed == kRecordsToMiss)
      raise("missing metric", record.value("step", int64_t{-1}),
            concat("'", key, "' was in the record of each step, and is not in the last ", kRecordsToMiss));
  }
}

void RunAlerts::forget_records() {
  num_equal_losses_ = num_records_ = 0;
  num_missed_.clear();
}

void RunAlerts::tell(const launch::Incident& incident) {
  using Kind = launch::Incident::Kind;
  const std::lock_guard lock(mutex_);
  if (incident.kind == Kind::kSuspended) return raise("suspended", -1, incident.what);
  if (incident.kind == Kind::kHang) {  // of what is ended, too, before it is gone
    if (!std::exchange(has_cause_, true)) raise("hang", -1, incident.what);
    return;
  }
  // What ended the attempt is already reported, but that the run has ended is not.
  if (!has_cause_ || !incident.starts_again) raise("failure", -1, incident.what);
  if (!incident.starts_again) return;
  ++attempt_;
  has_cause_ = false;
  told_.clear();
  forget_records();
}

// Under the lock.
void RunAlerts::raise(const std::string& incident, int64_t step, const std::string& detail) {
  if (!told_.insert(cause_of(incident, detail)).second) return;
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  nlohmann::ordered_json alert = {{"time", now},         {"host", host_name()},  {"run", folder_.string()},
                                  {"attempt", attempt_}, {"incident", incident}, {"detail", detail}};
  if (step >= 0) alert["step"] = step;
  sender_.send(alert.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace espalier
