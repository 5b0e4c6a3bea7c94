#include "launch/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>

#include "base/error.h"
#include "launch/internal/control_groups.h"
#include "launch/internal/number.h"

namespace espalier::launch {
namespace {

std::vector<int> cores_of_process(pid_t process) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::vector<int> cores;
  if (sched_getaffinity(process, sizeof mask, &mask) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &mask)) cores.push_back(core);
  return cores;
}

// Threads that run or could, on the whole machine, this one among them; and the machine's cores.
struct MachineLoad {
  int64_t num_running = 0;
  int64_t num_cores = 0;
};

std::optional<MachineLoad> machine_load(const std::filesystem::path& root) {
  MachineLoad load;
  std::ifstream file(root / "proc/stat");
  for (std::string line; std::getline(file, line);) {
    constexpr std::string_view kRunning = "procs_running ";
    if (line.starts_with("cpu") && line.size() > 3 && '0' <= line[3] && line[3] <= '9') ++load.num_cores;
    if (line.starts_with(kRunning)) load.num_running = parse_whole(line.substr(kRunning.size())).value_or(0);
  }
  if (load.num_running < 1 || load.num_cores < 1) return std::nullopt;
  return load;
}

// A number of the kernel's topology files; 0 where there is none (some containers).
int topology(int core, const char* name) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(core) + "/topology/" + name);
  int value = 0;
  file >> value;
  return file ? value : 0;
}

// Threads of one core side by side, cores of one socket together.
void sort_by_neighbourhood(std::vector<int>& cores) {
  std::vector<std::tuple<int, int, int>> places;
  for (const int core : cores)
    places.emplace_back(topology(core, "physical_package_id"), topology(core, "core_id"), core);
  std::sort(places.begin(), places.end());
  for (size_t at = 0; at < cores.size(); ++at) cores[at] = std::get<2>(places[at]);
}

pid_t parent_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');  // the name may hold blanks and brackets
  if (name_end == std::string::npos || name_end + 4 > text.size()) return 0;
  return std::atoi(text.c_str() + name_end + 4);
}

// Cores of the nearest ancestor that may use more than this process: the daemon that bound it, if one did.
size_t num_cores_above(size_t mine) {
  pid_t process = getppid();
  for (int level = 0; level < 4 && process > 1; ++level, process = parent_of(process))
    if (const size_t above = cores_of_process(process).size(); above > mine) return above;
  return mine;
}

bool has_bound_ranks(const RankEnvironment& place, size_t mine) {
  switch (place.kind) {
    case LaunchKind::kSlurm: {
      const char* type = std::getenv("SLURM_CPU_BIND_TYPE");
      return type != nullptr && *type != '\0' && std::strncmp(type, "none", 4) != 0;
    }
    case LaunchKind::kOpenMpi:
    case LaunchKind::kPals:
    case LaunchKind::kMpich:
    case LaunchKind::kMvapich:
    case LaunchKind::kJsm:
    case LaunchKind::kFlux: return num_cores_above(mine) > mine;
    default: return false;  // these ranks inherit the launcher's cores, all of them
  }
}

}  // namespace

CoreShare share_of_cores(const std::vector<int>& usable, int64_t local_rank, int64_t local_world_size) {
  const int64_t num_cores = static_cast<int64_t>(usable.size());
  ESPALIER_CHECK(0 <= local_rank && local_rank < local_world_size, local_rank, " of ", local_world_size);
  CoreShare share;
  share.explanation = concat(num_cores, num_cores == 1 ? " core" : " cores", " for ", local_world_size,
                             local_world_size == 1 ? " rank" : " ranks", " on this machine");
  if (local_world_size > num_cores) return share;
  const auto begin = usable.begin() + num_cores * local_rank / local_world_size;
  const auto end = usable.begin() + num_cores * (local_rank + 1) / local_world_size;
  share.num_threads = static_cast<int>(end - begin);
  if (local_world_size > 1) share.cpus.assign(begin, end);
  return share;
}

CoreShare share_of_cores(const RankEnvironment& place) {
  std::vector<int> usable = cores_of_process(0);
  if (usable.empty()) usable.push_back(0);
  if (const char* text = std::getenv("OMP_NUM_THREADS")) {
    if (const auto threads = parse_whole(text); threads && *threads > 0 && *threads < 100'000) {
      const std::string note = place.kind == LaunchKind::kTorchrun && *threads == 1 && usable.size() > 1
                                   ? " (torchrun sets 1 where nothing is set; --num-threads changes it)"
                                   : "";
      return {static_cast<int>(*threads), {}, concat("OMP_NUM_THREADS=", *threads, note)};
    }
  }
  if (place.local_world_size > 1 && has_bound_ranks(place, usable.size()))
    return {static_cast<int>(usable.size()), {}, concat(usable.size(), " cores, as the launcher bound this rank")};
  sort_by_neighbourhood(usable);
  return share_of_cores(usable, place.local_rank, place.local_world_size);
}

std::optional<double> cpu_quota(const std::filesystem::path& root) {
  std::optional<double> tightest;
  for (const ControlGroup& group : control_groups(root, "cpu")) {
    // "200000 100000" or "max 100000"; of version 1 two files, with -1 for no limit.
    std::ifstream quota_file(group.folder / (group.version == 2 ? "cpu.max" : "cpu.cfs_quota_us"));
    double quota = 0, period = 0;
    if (!(quota_file >> quota) || quota <= 0) continue;
    if (group.version == 2)
      quota_file >> period;
    else
      std::ifstream(group.folder / "cpu.cfs_period_us") >> period;
    if (period > 0) tightest = std::min(tightest.value_or(quota / period), quota / period);
  }
  return tightest;
}

bool has_free_cores(int64_t num_threads, const std::filesystem::path& root) {
  for (int look = 0; look < 5; ++look) {
    if (look > 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const std::optional<MachineLoad> load = machine_load(root);
    if (!load || load->num_running - 1 + num_threads <= load->num_cores) return true;
  }
  return false;
}

void bind_to_cores(const CoreShare& share) {
  if (share.cpus.empty()) return;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int core : share.cpus) CPU_SET(core, &mask);
  if (sched_setaffinity(0, sizeof mask, &mask) != 0)
    throw UserError(concat("cannot bind this rank to its ", share.cpus.size(), " cores: ", std::strerror(errno),
                           ". Set OMP_NUM_THREADS to leave the cores alone."));
}

}  // namespace espalier::launch
