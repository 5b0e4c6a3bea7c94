#include "watch/blame.h"

#include <csignal>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "launch/restart_policy.h"

namespace espalier::watch {
namespace {

constexpr int64_t kLeastFailures = 2, kTimesMoreThanOthers = 2;

bool says_any(const std::string& text, const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return text.find(word) != std::string::npos; });
}

// What drivers and libraries of GPUs say of a device that fails. An illegal address or a failed assertion is the
// program's.
const std::vector<std::string> kDeviceWords = {"Xid",
                                               "uncorrectable",
                                               "ECC error",
                                               "NVLink",
                                               "fallen off the bus",
                                               "unspecified launch failure",
                                               "GPU is lost",
                                               "no CUDA-capable device",
                                               "unknown error",
                                               "hardware stack error"};
const std::vector<std::string> kStorageWords = {"No space left",     "Disk quota exceeded",   "Input/output error",
                                                "Stale file handle", "Read-only file system", "Remote I/O error"};
const std::vector<std::string> kNetworkWords = {"NCCL", "ibv_", "Network is unreachable", "No route to host",
                                                "Link down"};

}  // namespace

const char* to_string(Cause cause) {
  switch (cause) {
    case Cause::kMachineLost: return "machine lost";
    case Cause::kDevice: return "device";
    case Cause::kHang: return "hang";
    case Cause::kKilled: return "killed";
    case Cause::kBusError: return "bus error";
    case Cause::kNetwork: return "network";
    case Cause::kStorage: return "storage";
    case Cause::kProgram: return "program";
    case Cause::kPeer: return "peer";
    case Cause::kStopped: return "stopped";
  }
  return "";
}

Cause cause_of(const launch::Failure& failure) {
  const std::string said = failure.message + "\n" + failure.last_lines;
  if (failure.lost_machine) return Cause::kMachineLost;
  if (says_any(said, kDeviceWords)) return Cause::kDevice;
  if (failure.message.starts_with("the run hangs")) return Cause::kHang;
  if (failure.signal == SIGKILL) return Cause::kKilled;
  if (failure.signal == SIGBUS) return Cause::kBusError;
  if (failure.signal == SIGTERM || failure.signal == SIGINT || failure.signal == SIGHUP) return Cause::kStopped;
  if (says_any(said, kStorageWords)) return Cause::kStorage;
  if (says_any(said, kNetworkWords)) return Cause::kNetwork;
  if (failure.exit_code == static_cast<int>(ExitCode::kLostPeer)) return Cause::kPeer;
  return Cause::kProgram;
}

std::vector<Blame> machines_to_leave_out(const std::vector<launch::Failure>& crashes) {
  std::map<std::string, int64_t> counts;
  std::map<std::string, Blame> blames;
  std::map<std::string, bool> is_certain;
  for (const launch::Failure& crash : crashes) {
    const Cause cause = cause_of(crash);
    if (cause == Cause::kStorage || cause == Cause::kProgram || cause == Cause::kPeer || cause == Cause::kStopped ||
        crash.host.empty())
      continue;
    Blame& blame = blames[crash.host];
    blame.host = crash.host;
    const std::string place = launch::place_of(crash);
    blame.evidence.push_back(concat(launch::local_time(crash.time), " ", to_string(cause), ", rank ", crash.rank,
                                    place.empty() ? "" : ", " + place, ": ", launch::describe(crash)));
    ++counts[crash.host];
    is_certain[crash.host] = is_certain[crash.host] || cause == Cause::kDevice;
  }
  std::vector<Blame> named;
  for (const auto& [host, blame] : blames) {
    int64_t most_elsewhere = 0;
    for (const auto& [other, count] : counts)
      if (other != host) most_elsewhere = std::max(most_elsewhere, count);
    const bool stands_out = counts[host] >= kLeastFailures && counts[host] > kTimesMoreThanOthers * most_elsewhere;
    if (is_certain[host] || stands_out) named.push_back(blame);
  }
  return named;
}

std::vector<launch::Failure> read_crashes(const std::string& run_folder) {
  std::vector<launch::Failure> crashes;
  std::ifstream lines(std::filesystem::path(run_folder) / "crashes.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json crash = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!crash.is_object() || !crash.contains("failures") || !crash["failures"].is_array()) continue;
    try {
      const auto failures = launch::failures_from_json(crash["failures"].dump());
      if (!failures.empty()) crashes.push_back(failures.front());
    } catch (const std::exception&) {  // of another version, or cut off: no evidence
    }
  }
  return crashes;
}

}  // namespace espalier::watch
