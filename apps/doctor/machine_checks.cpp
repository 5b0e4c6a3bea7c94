#include "apps/doctor/machine_checks.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "base/host_name.h"
#include "base/thread_pool.h"
#include "launch/cores.h"
#include "launch/environment.h"
#include "launch/machine_memory.h"

namespace espalier {
namespace {

using Verdict = Finding::Verdict;

constexpr double kGiB = 1073741824.0;

std::map<std::string, double> memory_info() {
  std::map<std::string, double> bytes;
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words = split_blanks(line);
    if (words.size() >= 2)
      bytes[words[0].substr(0, words[0].size() - 1)] = std::strtod(words[1].c_str(), nullptr) * 1024;
  }
  return bytes;
}

std::string cpu_line(const char* name) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name)) return strip(line.substr(line.find(':') + 1));
  return "";
}

std::string limit_text(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : format_count(static_cast<int64_t>(limit));
}

Finding limit_finding(const char* name, int resource, rlim_t least, bool is_bytes, const std::string& advice) {
  rlimit limits = {};
  getrlimit(static_cast<__rlimit_resource>(resource), &limits);
  const bool is_low = limits.rlim_cur != RLIM_INFINITY && limits.rlim_cur < least;
  const std::string text = is_bytes && limits.rlim_cur != RLIM_INFINITY
                               ? format_bytes(static_cast<double>(limits.rlim_cur))
                               : limit_text(limits.rlim_cur);
  return {concat("limit: ", name), is_low ? Verdict::kWarning : Verdict::kGood, text, is_low ? advice : ""};
}

}  // namespace

std::vector<Finding> check_processor() {
  std::string sets;
  const std::string flags = " " + cpu_line("flags") + " ";
  for (const char* name : {"avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16"})
    if (flags.find(concat(" ", name, " ")) != std::string::npos) sets += concat(sets.empty() ? "" : " ", name);
  std::vector<Finding> findings = {{"processor", Verdict::kGood, cpu_line("model name"), ""},
                                   {"instruction sets", Verdict::kGood, sets.empty() ? "none beyond SSE2" : sets, ""}};
  if (sets.find("avx2") == std::string::npos) {
    findings.back().verdict = Verdict::kWarning;
    findings.back().advice = "without AVX2 training uses the generic kernels, which are many times slower";
  }
  const int usable = num_usable_cores();
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  const std::optional<double> quota = launch::cpu_quota();
  Finding cores{"cores", Verdict::kGood, concat(usable, " usable of ", online), ""};
  if (quota) cores.text += concat("; control groups grant the time of ", format_printf("%.1f", *quota));
  if (quota && *quota + 0.5 < usable) {
    cores.verdict = Verdict::kWarning;
    cores.advice = concat("threads beyond the quota wait for each other; give --num-threads ",
                          std::max(1, static_cast<int>(std::floor(*quota))));
  }
  findings.push_back(cores);
  return findings;
}

std::vector<Finding> check_memory() {
  auto info = memory_info();
  constexpr double kLeast = 0.5 * kGiB;
  const launch::MachineMemory machine = launch::machine_memory();
  const auto room = static_cast<double>(machine.available_bytes);
  Finding memory{"memory", Verdict::kGood,
                 concat(format_bytes(info["MemTotal"]), ", ", format_bytes(room), " available by ", machine.source),
                 ""};
  if (room < kLeast) {
    memory.verdict = Verdict::kProblem;
    memory.advice = "even a small run needs half a GiB; end other programs or raise the limit";
  }
  const double swap = info["SwapTotal"];
  return {memory, {"swap", Verdict::kGood, swap > 0 ? format_bytes(swap) : "none", ""}};
}

std::vector<Finding> check_limits() {
  constexpr rlim_t kFiles = 1024, kProcesses = 256, kBytes = rlim_t{4} << 30;
  return {
      limit_finding("open files", RLIMIT_NOFILE, kFiles, false, "many shards and ranks need more: ulimit -n 65536"),
      limit_finding("processes", RLIMIT_NPROC, kProcesses, false, "ranks and their threads need more: ulimit -u"),
      limit_finding("address space", RLIMIT_AS, kBytes, true, "token files are mapped whole: ulimit -v unlimited"),
      limit_finding("file size", RLIMIT_FSIZE, kBytes, true, "files of checkpoints are larger: ulimit -f unlimited"),
      limit_finding("locked memory", RLIMIT_MEMLOCK, 0, true, "")};
}

std::vector<Finding> check_network_and_clock() {
  std::vector<Finding> findings;
  const std::string host = host_name();
  addrinfo* addresses = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, nullptr, &addresses);
  if (error == 0) freeaddrinfo(addresses);
  findings.push_back({"host name", error == 0 ? Verdict::kGood : Verdict::kWarning,
                      concat(host, error == 0 ? "" : concat(": ", gai_strerror(error))),
                      error == 0 ? "" : "other machines cannot find this one by its name; launch needs --local-addr"});
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool listens = listener >= 0 && bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                       listen(listener, 1) == 0;
  findings.push_back({"loopback", listens ? Verdict::kGood : Verdict::kWarning,
                      listens ? "takes connections" : concat("cannot listen: ", std::strerror(errno)),
                      listens ? "" : "several processes on this machine could not find each other"});
  if (listener >= 0) close(listener);
  timex clock = {};
  const int state = adjtimex(&clock);
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  gmtime_r(&now, &parts);
  char text[64];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
  constexpr int kBuiltIn = 2026 - 1900;
  const bool is_sane = parts.tm_year >= kBuiltIn - 1;
  const bool is_synchronized = state >= 0 && (clock.status & STA_UNSYNC) == 0;
  findings.push_back({"clock", is_sane ? Verdict::kGood : Verdict::kWarning,
                      concat(text, is_synchronized ? ", synchronized" : ", not known to be synchronized"),
                      is_sane ? "" : "set the clock: records and job limits rely on it"});
  return findings;
}

std::vector<Finding> check_schedulers() {
  std::string found;
  const char* const path = std::getenv("PATH");
  for (const auto& [program, name] : {std::pair("sbatch", "SLURM"), std::pair("qsub", "PBS")})
    for (const std::string& folder : split(path == nullptr ? "" : path, ':'))
      if (access(concat(folder, "/", program).c_str(), X_OK) == 0) {
        found += concat(found.empty() ? "" : ", ", name, " (", folder, "/", program, ")");
        break;
      }
  std::vector<Finding> findings = {
      {"scheduler", Verdict::kGood, found.empty() ? "neither SLURM nor PBS in the path" : found, ""}};
  try {
    const launch::RankEnvironment place = launch::detect_environment();
    findings.push_back(
        {"started by", place.doubt.empty() ? Verdict::kGood : Verdict::kWarning, place.explanation, place.doubt});
  } catch (const UserError& error) {
    findings.push_back({"started by", Verdict::kProblem, error.what(), "training would stop with this message"});
  }
  return findings;
}

}  // namespace espalier
