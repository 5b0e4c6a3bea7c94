// Which rank of how many this process is, and where the ranks meet: read from the variables of whatever started it.
//
//   const RankEnvironment place = detect_environment();
//   if (place.rank == 0) log_info(place.explanation);   // "ranks by SLURM: rank 0 of 8 on 2 machines, ..."
//
// Order of precedence: explicit flags, RANK (torchrun, espalier launch, by hand), a SLURM step, MPI and the like, a
// single process. Two sources that contradict each other are a UserError that shows both; a launcher inside a launcher
// (torchrun or mpirun, one a machine, started by srun) is not a contradiction. One of several SLURM tasks that lacks
// its step's variables is refused too: it is not a single process.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace espalier::launch {

enum class LaunchKind {
  kSingle,    // nothing says that there are others
  kFlags,     // explicit flags
  kEspalier,  // espalier launch
  kTorchrun,  // another program with torchrun's environment
  kByHand,    // RANK and WORLD_SIZE without a launcher's marks
  kSlurm,
  kOpenMpi,
  kPals,   // Cray and Argonne; before kMpich, whose variables it sets as well
  kMpich,  // MPICH, Intel MPI, srun --mpi=pmi2
  kMvapich,
  kJsm,  // LSF's jsrun
  kFlux,
};

std::string to_string(LaunchKind kind);

struct RankEnvironment {
  // One process on each machine has started its ranks, and outlives them.
  bool has_launcher() const {
    return kind != LaunchKind::kSingle && kind != LaunchKind::kFlags && kind != LaunchKind::kByHand;
  }
  LaunchKind kind = LaunchKind::kSingle;
  int64_t rank = 0, world_size = 1;
  int64_t local_rank = 0, local_world_size = 1;  // by hand on several machines: of those that are known of
  bool one_machine = true;  // all ranks are on this one: what starts them says so, or else their loopback address
  bool machines_may_change = false;  // between starts: espalier launch --nnodes MIN:MAX
  std::optional<int64_t> node_rank;
  std::string master_address = "127.0.0.1";  // host name or address of rank 0
  int master_port = 0;                       // 0: a free one (a single process)
  // Somebody else's launcher hosts a c10d TCPStore at the master's address: rank 0 connects to it like the others.
  bool foreign_store = false;
  // espalier launch hosts our rendezvous store there: again nobody else does.
  bool launcher_store = false;
  int64_t restart_count = 0;  // of espalier launch or torchrun: how often the group has been started again
  std::string run_id;         // of the launcher or the batch system; empty if there is none
  std::string explanation;    // which source won and what it said, in one line
  std::string doubt;          // of a single process: why several were probably meant; usually empty
};

// Flags that name a rank win over every variable.
struct RankFlags {
  std::optional<int64_t> rank, world_size, local_rank, local_world_size;
  std::optional<std::string> master_address;
  std::optional<int64_t> master_port;
};

using Variables = std::map<std::string, std::string>;

Variables process_variables();

RankEnvironment detect_environment(const Variables& variables, const RankFlags& flags = {});
RankEnvironment detect_environment(const RankFlags& flags = {});

// When espalier launch was started that runs this process, on this machine's steady clock: restarts do not change it.
// Nothing where another launcher, or none, did, or the time has not come here: it is another machine's then. A
// UserError where the variable holds anything else.
using SteadyTime = std::chrono::steady_clock::time_point;
inline constexpr const char* kLaunchedAtVariable = "ESPALIER_LAUNCHED_AT";
inline constexpr const char* kMachinesMayChangeVariable = "ESPALIER_MACHINES_MAY_CHANGE";
std::string launched_at_text(SteadyTime time);
std::optional<SteadyTime> launched_at(const Variables& variables = process_variables());

}  // namespace espalier::launch
