#include "watch/blame.h"

#include <csignal>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "launch/restart_policy.h"

namespace espalier::watch {
namespace {

constexpr size_t kLeastFailures = 2, kTimesMoreThanOthers = 2;
// Between a rank's death and the end of its job in the scheduler's books, whose clock may be another machine's.
constexpr double kSecondsAroundEnd = 300;

bool says_any(const std::string& text, const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return text.find(word) != std::string::npos; });
}

// What drivers and libraries of GPUs say of a device that fails. An illegal address or a failed assertion is the
// program's.
const std::vector<std::string> kDeviceWords = {
    "uncorrectable ECC error", "uncorrectable NVLink error", "double bit error",
    "fallen off the bus",      "unspecified launch failure", "GPU is lost",
    "no CUDA-capable device",  "CUDA error: unknown error",  "hardware stack error"};
const std::vector<std::string> kStorageWords = {"No space left",     "Disk quota exceeded",   "Input/output error",
                                                "Stale file handle", "Read-only file system", "Remote I/O error"};
const std::vector<std::string> kNetworkWords = {"unhandled system error", "ncclSystemError",  "ibv_",
                                                "Network is unreachable", "No route to host", "Link down"};
const std::vector<std::string> kPeerWords = {"remote process exited", "ncclRemoteError"};

// The driver's events of an error of the program that the device ran, as NVIDIA's own plugin for Kubernetes has them:
// exception, page fault, stopped processing, cleanup, video processor, context switch.
constexpr int kXidsOfPrograms[] = {13, 31, 43, 45, 68, 109};

// Of "NVRM: Xid (PCI:0000:c6:00): 79, pid=...", 79.
std::optional<int> xid_of(const std::string& line) {
  const size_t at = line.find("Xid (");
  const size_t end = at == std::string::npos ? at : line.find("): ", at);
  if (end == std::string::npos) return std::nullopt;
  int number = 0;
  if (std::from_chars(line.data() + end + 3, line.data() + line.size(), number).ec != std::errc()) return std::nullopt;
  return number;
}

// What is left without NCCL's tale of its connections: those of a rank break whichever rank has ended.
std::string without_nccl(const std::string& text) {
  std::string kept;
  for (const std::string& line : split(text, '\n'))
    if (line.find("NCCL INFO") == std::string::npos && line.find("NCCL WARN") == std::string::npos) kept += line + "\n";
  return kept;
}

bool is_device(const std::string& text) {
  bool is_of_program = false;
  for (const std::string& line : split(text, '\n')) {
    const std::optional<int> xid = xid_of(line);
    if (!xid) continue;
    if (std::find(std::begin(kXidsOfPrograms), std::end(kXidsOfPrograms), *xid) == std::end(kXidsOfPrograms))
      return true;
    is_of_program = true;
  }
  return !is_of_program && says_any(text, kDeviceWords);
}

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
  const std::string lines = without_nccl(failure.last_lines);
  // A rank that could say why it failed is believed; what else was printed is by others as well.
  const std::string& said = failure.message.empty() ? lines : failure.message;
  if (failure.lost_machine) return Cause::kMachineLost;
  if (is_device(failure.message + "\n" + lines)) return Cause::kDevice;
  if (failure.message.starts_with("the run hangs")) return Cause::kHang;
  if (failure.lacked_memory) return Cause::kProgram;  // it asked for more than its group may have, and would elsewhere
  if (failure.signal == SIGKILL) return Cause::kKilled;
  if (failure.signal == SIGBUS) return Cause::kBusError;
  if (failure.signal == SIGTERM || failure.signal == SIGINT || failure.signal == SIGHUP) return Cause::kStopped;
  if (says_any(said, kStorageWords)) return Cause::kStorage;
  if (failure.exit_code == static_cast<int>(ExitCode::kLostPeer) || says_any(said, kPeerWords)) return Cause::kPeer;
  if (says_any(said, kNetworkWords)) return Cause::kNetwork;
  return Cause::kProgram;
}

namespace {

struct Evidence {
  std::string host, job, text;
  double time = 0;
  Cause cause = Cause::kProgram;
};

bool is_among(const std::string& word, const std::vector<std::string>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool is_of_machine(Cause cause) {
  return cause != Cause::kStorage && cause != Cause::kProgram && cause != Cause::kPeer && cause != Cause::kStopped;
}

// The scheduler's record of the job in which something failed at that time, if it ended then.
const JobRecord* record_of(const std::vector<JobRecord>& jobs, const std::string& job, double time) {
  for (const JobRecord& record : jobs)
    if (!job.empty() && record.id == job && std::abs(record.end - time) <= kSecondsAroundEnd) return &record;
  return nullptr;
}

// What the end of its job makes of it.
Cause corrected(Cause cause, const JobRecord& record) {
  const bool was_killed = cause == Cause::kKilled || cause == Cause::kMachineLost || cause == Cause::kStopped;
  if (was_killed && is_among(record.state, {"PREEMPTED", "CANCELLED", "TIMEOUT", "DEADLINE", "REQUEUED"}))
    return Cause::kStopped;
  if (was_killed && record.state == "OUT_OF_MEMORY") return Cause::kProgram;
  return cause;
}

std::vector<Evidence> evidence_of(const std::vector<Crash>& crashes, const std::vector<JobRecord>& jobs) {
  std::vector<Evidence> all;
  for (const Crash& crash : crashes) {
    const launch::Failure& failure = crash.failure;
    const JobRecord* record = record_of(jobs, crash.job, failure.time);
    const Cause cause = record == nullptr ? cause_of(failure) : corrected(cause_of(failure), *record);
    const std::string place = launch::place_of(failure);
    all.push_back({.host = failure.host,
                   .job = crash.job,
                   .text = concat(to_string(cause), ", rank ", failure.rank, place.empty() ? "" : ", " + place, ": ",
                                  launch::describe(failure)),
                   .time = failure.time,
                   .cause = cause});
  }
  for (const JobRecord& record : jobs) {
    if (!is_among(record.state, {"NODE_FAIL", "BOOT_FAIL"})) continue;
    const std::string host = !record.failed_node.empty() ? record.failed_node
                             : record.nodes.size() == 1  ? record.nodes[0]
                                                         : "";
    const auto told = std::find_if(all.begin(), all.end(), [&](const Evidence& evidence) {
      return evidence.host == host && evidence.job == record.id && is_of_machine(evidence.cause) &&
             std::abs(evidence.time - record.end) <= kSecondsAroundEnd;
    });
    if (host.empty()) continue;
    if (told != all.end())
      told->text = concat(describe(record), "; ", told->text);
    else
      all.push_back({host, record.id, describe(record), record.end, Cause::kMachineLost});
  }
  return all;
}

}  // namespace

std::vector<Blame> machines_to_leave_out(const std::vector<Crash>& crashes, const std::vector<JobRecord>& jobs) {
  std::map<std::string, Blame> blames;
  std::map<std::string, bool> is_certain;
  for (const Evidence& evidence : evidence_of(crashes, jobs)) {
    if (!is_of_machine(evidence.cause) || evidence.host.empty()) continue;
    Blame& blame = blames[evidence.host];
    blame.host = evidence.host;
    blame.evidence.push_back(concat(launch::local_time(evidence.time), " ", evidence.text));
    is_certain[evidence.host] = is_certain[evidence.host] || evidence.cause == Cause::kDevice;
  }
  std::vector<Blame> named;
  for (const auto& [host, blame] : blames) {
    size_t most_elsewhere = 0;
    for (const auto& [other, of_other] : blames)
      if (other != host) most_elsewhere = std::max(most_elsewhere, of_other.evidence.size());
    const size_t count = blame.evidence.size();
    const bool stands_out = count >= kLeastFailures && count > kTimesMoreThanOthers * most_elsewhere;
    if (is_certain[host] || stands_out) named.push_back(blame);
  }
  return named;
}

std::vector<Crash> read_crashes(const std::string& run_folder) {
  std::vector<Crash> crashes;
  std::ifstream lines(std::filesystem::path(run_folder) / "crashes.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json crash = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!crash.is_object() || !crash.contains("failures") || !crash["failures"].is_array()) continue;
    try {
      const auto failures = launch::failures_from_json(crash["failures"].dump());
      if (!failures.empty()) crashes.push_back({failures.front(), crash.value("SLURM_JOB_ID", "")});
    } catch (const std::exception&) {  // of another version, or cut off: no evidence
    }
  }
  return crashes;
}

}  // namespace espalier::watch
