#include "watch/judge.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace espalier::watch {
namespace {

constexpr double kGiB = 1073741824.0, kCheckpointsOfRoom = 2, kFewInodes = 1000;

}  // namespace

std::vector<Trouble> Incidents::update(const std::vector<Trouble>& all) {
  std::map<std::pair<std::string, std::string>, std::string> now;
  std::vector<Trouble> news;
  for (const Trouble& trouble : all) {
    const auto key = std::pair(trouble.incident, trouble.run);
    if (!open_.contains(key) && !now.contains(key)) news.push_back(trouble);
    now.emplace(key, trouble.detail);
  }
  open_ = now;
  return news;
}

bool Incidents::is_open(const std::string& incident, const std::string& run) const {
  return open_.contains({incident, run});
}

std::string Incidents::to_json() const {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [key, detail] : open_)
    list.push_back({{"incident", key.first}, {"run", key.second}, {"detail", detail}});
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void Incidents::read_json(const std::string& text) {
  const auto list = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  open_.clear();
  if (!list.is_array()) return;
  for (const auto& entry : list)
    if (entry.is_object()) open_[{entry.value("incident", ""), entry.value("run", "")}] = entry.value("detail", "");
}

Need Judge::need_of(const std::vector<RunSight>& runs) const {
  double bytes = 0, files = 0;
  for (const RunSight& run : runs) {
    bytes += static_cast<double>(run.checkpoint_bytes);
    files += static_cast<double>(run.checkpoint_files);
  }
  return {.bytes = rules_.least_free_bytes > 0 ? rules_.least_free_bytes : std::max(kGiB, kCheckpointsOfRoom * bytes),
          .inodes = std::max(kFewInodes, kCheckpointsOfRoom * files)};
}

std::vector<Trouble> Judge::look(const WatchSight& sight, double now) {
  std::vector<Trouble> all;
  for (const RunSight& run : sight.runs) {
    Pulse& pulse = pulses_.try_emplace(run.folder.string(), rules_.patience).first->second;
    const std::string what = pulse.look(run, now, sight.is_queued);
    if (!what.empty()) all.push_back({"no progress", run.folder.string(), what});
  }
  std::set<uint64_t> seen;
  const Need need = need_of(sight.runs);
  for (const Room& room : sight.rooms) {
    if (!seen.insert(room.device).second) continue;
    bool& was_low = is_low_[room.device];
    const std::string what = lack_of_room(room, need, was_low);
    was_low = !what.empty();
    if (was_low) all.push_back({"little room", room.folder, what});
  }
  const std::string what = lack_of_quota(sight.quotas, rules_.most_quota_share, quota_is_low_);
  quota_is_low_ = !what.empty();
  if (quota_is_low_) all.push_back({"quota", "", what});
  return all;
}

}  // namespace espalier::watch
