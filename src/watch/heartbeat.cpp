#include "watch/heartbeat.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"

namespace espalier::watch {
namespace {

constexpr double kIntervals = 3, kShortest = 2;

std::filesystem::path file_of(const std::filesystem::path& run_folder) {
  return watch_folder(run_folder) / "heartbeat.json";
}

int64_t touched_at(const std::filesystem::path& file) {
  std::error_code error;
  const auto time = std::filesystem::last_write_time(file, error);
  return error ? 0 : int64_t{time.time_since_epoch().count()};
}

}  // namespace

std::filesystem::path watch_folder(const std::filesystem::path& run_folder) { return run_folder / "watch"; }

void write_heartbeat(const std::filesystem::path& run_folder, const Heartbeat& heartbeat) {
  const nlohmann::ordered_json text = {{"beat", heartbeat.beat},
                                       {"host", heartbeat.host},
                                       {"pid", heartbeat.pid},
                                       {"interval_seconds", heartbeat.interval_seconds},
                                       {"ended", heartbeat.has_ended}};
  try {
    write_file_atomically(file_of(run_folder), text.dump() + "\n");
  } catch (const UserError&) {
    std::error_code error;
    std::filesystem::last_write_time(file_of(run_folder), std::filesystem::file_time_type::clock::now(), error);
    throw;
  }
}

std::optional<Heartbeat> read_heartbeat(const std::filesystem::path& run_folder) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file_of(run_folder), error)) return std::nullopt;
  try {
    const int64_t touched = touched_at(file_of(run_folder));
    const auto text = nlohmann::json::parse(read_file(file_of(run_folder)));
    return Heartbeat{.host = text.at("host"),
                     .pid = text.at("pid"),
                     .beat = text.at("beat"),
                     .interval_seconds = text.at("interval_seconds"),
                     .has_ended = text.at("ended"),
                     .touched = touched};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

double HeartbeatWatch::patience_seconds(const Heartbeat& heartbeat) {
  return std::max(kShortest, kIntervals * heartbeat.interval_seconds);
}

std::string HeartbeatWatch::look(const std::optional<Heartbeat>& heartbeat, double now) {
  // One that cannot be read for a moment is the last one still.
  const bool is_new = heartbeat && (!last_ || heartbeat->beat != last_->beat || heartbeat->touched != last_->touched ||
                                    heartbeat->pid != last_->pid || heartbeat->host != last_->host);
  if (is_new) changed_ = now;
  if (heartbeat) last_ = heartbeat;
  if (!last_ || last_->has_ended || now - changed_ < patience_seconds(*last_)) return "";
  return concat("espalier watch (process ", last_->pid, " on ", last_->host, ") has not looked at the run for ",
                format_duration(now - changed_), ", where it looks every ", format_duration(last_->interval_seconds),
                ": nobody watches it");
}

}  // namespace espalier::watch
