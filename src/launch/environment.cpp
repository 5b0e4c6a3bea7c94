#include "launch/environment.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/sha256.h"
#include "launch/internal/number.h"
#include "launch/internal/socket.h"
#include "launch/nodelist.h"

namespace espalier::launch {
namespace {

// What one source says of this process. `text` repeats it in the source's own words.
struct Claim {
  LaunchKind kind = LaunchKind::kSingle;
  int64_t rank = 0, world_size = 1;
  std::optional<int64_t> local_rank, local_world_size, node_rank;
  std::string text;
};

class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  std::optional<std::string> text(const std::string& name) const {
    const auto found = variables_.find(name);
    if (found == variables_.end() || found->second.empty()) return std::nullopt;
    return found->second;
  }
  std::optional<std::string> first_text(const std::vector<std::string>& names) const {
    for (const std::string& name : names)
      if (auto value = text(name)) return value;
    return std::nullopt;
  }
  std::optional<int64_t> number(const std::string& name) const {
    const std::optional<std::string> value = text(name);
    if (!value) return std::nullopt;
    const std::optional<int64_t> parsed = parse_whole(*value);
    if (!parsed)
      throw UserError(concat("the environment's ", name, "='", *value, "' is not a whole number of at least 0"),
                      ExitCode::kUsage);
    return parsed;
  }
  std::optional<int64_t> first_number(const std::vector<std::string>& names) const {
    for (const std::string& name : names)
      if (const auto value = number(name)) return value;
    return std::nullopt;
  }
  bool truth(const std::string& name) const {
    const std::string value = text(name).value_or("");
    return value == "True" || value == "true" || value == "1";
  }

 private:
  const Variables& variables_;
};

std::string said(const std::string& rank_name, int64_t rank, const std::string& size_name, int64_t size) {
  return concat(rank_name, "=", rank, ", ", size_name, "=", size);
}

std::optional<Claim> claim_of_rank_variables(const Reader& env) {
  const auto rank = env.number("RANK"), size = env.number("WORLD_SIZE");
  if (!rank) return std::nullopt;
  if (!size)
    throw UserError(concat("the environment has RANK=", *rank, " but no WORLD_SIZE. Set both, or neither."),
                    ExitCode::kUsage);
  Claim claim;
  claim.kind = env.text("ESPALIER_LAUNCH")       ? LaunchKind::kEspalier
               : env.text("TORCHELASTIC_RUN_ID") ? LaunchKind::kTorchrun
                                                 : LaunchKind::kByHand;
  claim.rank = *rank, claim.world_size = *size;
  claim.local_rank = env.number("LOCAL_RANK");
  claim.local_world_size = env.first_number({"LOCAL_WORLD_SIZE", "LOCAL_SIZE"});
  claim.node_rank = env.first_number({"GROUP_RANK", "CROSS_RANK", "NODE_RANK"});
  claim.text = said("RANK", claim.rank, "WORLD_SIZE", claim.world_size);
  return claim;
}

std::optional<Claim> claim_of_slurm(const Reader& env) {
  // A batch script has SLURM_PROCID=0 as well, but is not a step.
  const auto rank = env.number("SLURM_PROCID"), size = env.first_number({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  if (!rank || !size || !env.text("SLURM_STEP_ID") || !env.text("SLURM_STEP_NUM_TASKS")) return std::nullopt;
  Claim claim;
  claim.kind = LaunchKind::kSlurm;
  claim.rank = *rank, claim.world_size = *size;
  claim.local_rank = env.number("SLURM_LOCALID");
  claim.node_rank = env.number("SLURM_NODEID");
  if (const auto counts = env.first_text({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"})) {
    const std::vector<int64_t> tasks = expand_tasks_per_node(*counts);
    const size_t node = static_cast<size_t>(claim.node_rank.value_or(0));
    if (node < tasks.size()) claim.local_world_size = tasks[node];
  }
  claim.text = said("SLURM_PROCID", claim.rank, "SLURM_STEP_NUM_TASKS", claim.world_size);
  return claim;
}

// The variables of one kind of MPI; empty names are not there.
struct MpiNames {
  LaunchKind kind;
  std::vector<std::string> rank, size, local_rank, local_size, node_rank;
};

const std::vector<MpiNames>& mpi_names() {
  static const std::vector<MpiNames> names = {
      {LaunchKind::kOpenMpi,
       {"OMPI_COMM_WORLD_RANK"},
       {"OMPI_COMM_WORLD_SIZE"},
       {"OMPI_COMM_WORLD_LOCAL_RANK"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE"},
       {}},  // OMPI_COMM_WORLD_NODE_RANK is a rank within the node, not the node's
      {LaunchKind::kMvapich,
       {"MV2_COMM_WORLD_RANK"},
       {"MV2_COMM_WORLD_SIZE"},
       {"MV2_COMM_WORLD_LOCAL_RANK"},
       {"MV2_COMM_WORLD_LOCAL_SIZE"},
       {}},
      {LaunchKind::kPals,
       {"PALS_RANKID"},
       {"PALS_SIZE", "PMI_SIZE", "PMIX_SIZE"},
       {"PALS_LOCAL_RANKID"},
       {"PALS_LOCAL_SIZE"},
       {"PALS_NODEID"}},
      {LaunchKind::kMpich,
       {"PMI_RANK"},
       {"PMI_SIZE"},
       {"MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"},
       {"MPI_LOCALNRANKS", "PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"},
       {}},
      {LaunchKind::kJsm,
       {"JSM_NAMESPACE_RANK"},
       {"JSM_NAMESPACE_SIZE"},
       {"JSM_NAMESPACE_LOCAL_RANK"},
       {"JSM_NAMESPACE_LOCAL_SIZE"},
       {}},
      {LaunchKind::kFlux, {"FLUX_TASK_RANK"}, {"FLUX_JOB_SIZE"}, {"FLUX_TASK_LOCAL_ID"}, {}, {}},
  };
  return names;
}

std::optional<Claim> claim_of_mpi(const Reader& env) {
  for (const MpiNames& names : mpi_names()) {
    const auto rank = env.first_number(names.rank), size = env.first_number(names.size);
    if (!rank || !size) continue;
    Claim claim;
    claim.kind = names.kind;
    claim.rank = *rank, claim.world_size = *size;
    claim.local_rank = env.first_number(names.local_rank);
    claim.local_world_size = env.first_number(names.local_size);
    claim.node_rank = env.first_number(names.node_rank);
    claim.text = said(names.rank.front(), claim.rank, names.size.front(), claim.world_size);
    return claim;
  }
  return std::nullopt;
}

std::optional<Claim> claim_of_flags(const RankFlags& flags) {
  if (!flags.rank && !flags.world_size) return std::nullopt;
  if (!flags.rank || !flags.world_size)
    throw UserError("give the rank and the world size together, or neither", ExitCode::kUsage);
  Claim claim{LaunchKind::kFlags, *flags.rank, *flags.world_size, flags.local_rank, flags.local_world_size, {}, ""};
  claim.text = said("rank", claim.rank, "world size", claim.world_size);
  return claim;
}

void check_range(const Claim& claim) {
  if (claim.world_size < 1 || claim.rank >= claim.world_size)
    throw UserError(concat(claim.text, ": ranks count from 0, so rank ", claim.rank, " is none of ", claim.world_size,
                           claim.world_size == 1 ? " process" : " processes"),
                    ExitCode::kUsage);
  if (claim.local_rank && claim.local_world_size && *claim.local_rank >= *claim.local_world_size)
    throw UserError(concat(claim.text, ": local rank ", *claim.local_rank, " is none of the ", *claim.local_world_size,
                           " on this machine"),
                    ExitCode::kUsage);
}

// The outer launcher started one task for each share of the inner one's ranks, in order.
bool is_nested(const Claim& inner, const Claim& outer) {
  if (inner.world_size % outer.world_size != 0) return false;
  const int64_t ranks_of_task = inner.world_size / outer.world_size;
  return ranks_of_task > 1 && inner.rank / ranks_of_task == outer.rank;
}

bool agree(const Claim& winner, const Claim& other) {
  if (winner.world_size == other.world_size) return winner.rank == other.rank;
  return is_nested(winner, other);
}

void check_agreement(const Claim& winner, const Claim& other) {
  if (agree(winner, other)) return;
  throw UserError(concat(to_string(winner.kind), " and ", to_string(other.kind),
                         " disagree on which rank this is: ", winner.text, " against ", other.text,
                         ". Unset one of them. (Is a variable set once for all tasks, or expanded before srun?)"),
                  ExitCode::kUsage);
}

// mpirun starts its daemons with srun, one a machine; their step's variables reach the ranks.
bool is_daemon_step(const Claim& slurm, const Claim& mpi) {
  return slurm.local_world_size.value_or(1) == 1 && slurm.world_size < mpi.world_size;
}

// One of several tasks that have lost the rest of their variables would each train alone, and write the same files.
void check_is_no_lost_task(const Reader& env) {
  const auto rank = env.number("SLURM_PROCID");
  if (rank.value_or(0) == 0) return;  // a batch script has 0 as well
  throw UserError(concat("the environment has SLURM_PROCID=", *rank,
                         ", of one of several tasks, but no SLURM_STEP_ID with SLURM_STEP_NUM_TASKS, which srun sets. "
                         "Pass all of SLURM_* on to the process (containers and sudo leave variables out), or set RANK "
                         "and WORLD_SIZE."),
                  ExitCode::kUsage);
}

Claim choose(const Reader& env, const RankFlags& flags) {
  const auto by_flags = claim_of_flags(flags), by_rank = claim_of_rank_variables(env), slurm = claim_of_slurm(env);
  const auto mpi = claim_of_mpi(env);
  for (const auto* claim : {&by_flags, &by_rank, &slurm, &mpi})
    if (*claim) check_range(**claim);
  if (by_flags) return *by_flags;
  if (by_rank) {
    // A launcher's agent may run in a step or under mpirun, and numbers its ranks as it likes.
    if (by_rank->kind != LaunchKind::kByHand) return *by_rank;
    if (slurm) check_agreement(*by_rank, *slurm);
    if (mpi) check_agreement(*by_rank, *mpi);
    return *by_rank;
  }
  if (slurm && mpi && is_daemon_step(*slurm, *mpi)) return *mpi;
  if (slurm) {
    if (mpi) check_agreement(*slurm, *mpi);
    return *slurm;
  }
  if (mpi) return *mpi;
  check_is_no_lost_task(env);
  return {LaunchKind::kSingle, 0, 1, 0, 1, 0, ""};
}

std::string first_node(const std::string& node_file) {
  const std::vector<std::string> words = split_blanks(read_file(node_file));
  if (words.empty()) throw UserError(concat("PBS_NODEFILE=", node_file, " names no host"), ExitCode::kBadData);
  return words.front();
}

std::string master_address(const Reader& env, const Claim& claim) {
  if (const auto address = env.text("MASTER_ADDR")) return *address;
  if (claim.world_size == 1 || claim.local_world_size == claim.world_size) return "127.0.0.1";
  if (const auto nodes = env.first_text({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}))
    return expand_nodelist(*nodes).front();
  if (const auto file = env.text("PBS_NODEFILE")) return first_node(*file);
  if (const auto hosts = env.first_text({"LSB_MCPU_HOSTS", "LSB_HOSTS"})) return split_blanks(*hosts).front();
  if (const auto node = env.text("AZ_BATCH_MASTER_NODE")) return node->substr(0, node->find(':'));
  if (claim.kind == LaunchKind::kByHand || claim.kind == LaunchKind::kFlags) return "127.0.0.1";  // as Megatron does
  throw UserError(concat(claim.text,
                         " says that there are several ranks, but nothing says on which host rank 0 runs. "
                         "Set MASTER_ADDR to it for all ranks (mpirun -x MASTER_ADDR=HOST)."),
                  ExitCode::kUsage);
}

// Below the ports that systems hand out by themselves, different for different jobs.
int master_port(const Reader& env, const Claim& claim) {
  if (const auto port = env.number("MASTER_PORT")) {
    if (*port < 1 || *port > 65535)
      throw UserError(concat("the environment's MASTER_PORT=", *port, " is not a port (1 to 65535)"), ExitCode::kUsage);
    return static_cast<int>(*port);
  }
  if (claim.world_size == 1) return 0;
  if (const auto job = env.first_number({"SLURM_JOB_ID", "SLURM_JOBID"})) return 15000 + static_cast<int>(*job % 10000);
  if (const auto job = env.first_text({"PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "PALS_APID", "PMIX_NAMESPACE"})) {
    const Sha256Digest sum = sha256(*job);
    return 15000 + (sum[0] << 8 | sum[1]) % 10000;
  }
  return 29500;
}

std::string run_id(const Reader& env) {
  const std::string step = env.text("SLURM_STEP_ID").value_or("");
  if (const auto id = env.text("TORCHELASTIC_RUN_ID")) return *id;
  if (const auto id = env.first_text({"SLURM_JOB_ID", "SLURM_JOBID"})) return step.empty() ? *id : *id + "." + step;
  return env.first_text({"PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"}).value_or("");
}

// Ranks by hand often come without the local ones.
void complete_local_ranks(Claim& claim, bool one_machine) {
  if (!claim.local_world_size)
    claim.local_world_size = one_machine ? claim.world_size : claim.local_rank.value_or(0) + 1;
  if (!claim.local_rank) claim.local_rank = one_machine ? claim.rank : 0;
}

// A batch script, or the shell of salloc, that starts the program without srun.
std::string doubt_of_single_process(const Reader& env) {
  const auto job = env.first_text({"SLURM_JOB_ID", "SLURM_JOBID"});
  if (!job || env.text("SLURM_STEP_ID")) return "";
  const int64_t nodes = env.first_number({"SLURM_JOB_NUM_NODES", "SLURM_NNODES"}).value_or(1);
  const int64_t tasks = std::max(nodes, env.first_number({"SLURM_NTASKS", "SLURM_NPROCS"}).value_or(1));
  if (tasks == 1) return "";
  return concat("one process trains alone: SLURM's job ", *job, " has ", tasks, " tasks on ", nodes,
                nodes == 1 ? " node" : " nodes",
                ", and this one was not started by srun. Write `srun espalier train ...` ",
                "for a process in each task; where one is meant, ask for --ntasks 1 with --cpus-per-task.");
}

std::string explain(const RankEnvironment& place, const Claim& claim) {
  if (place.kind == LaunchKind::kSingle) return "a single process: nothing in the environment names other ranks";
  std::string text = concat("ranks by ", to_string(place.kind), ": ", claim.text, "; local rank ", place.local_rank,
                            " of ", place.local_world_size);
  if (place.world_size == 1) return text;
  text += concat("; the ranks meet at ", place.master_address, ":", place.master_port, ", ");
  return text + (place.foreign_store    ? "in the launcher's rendezvous store"
                 : place.launcher_store ? "in the rendezvous store of espalier launch"
                                        : "in the rendezvous store of rank 0");
}

}  // namespace

std::string to_string(LaunchKind kind) {
  switch (kind) {
    case LaunchKind::kSingle: return "a single process";
    case LaunchKind::kFlags: return "flags";
    case LaunchKind::kEspalier: return "espalier launch";
    case LaunchKind::kTorchrun: return "torchrun";
    case LaunchKind::kByHand: return "the environment";
    case LaunchKind::kSlurm: return "SLURM";
    case LaunchKind::kOpenMpi: return "Open MPI";
    case LaunchKind::kPals: return "PALS";
    case LaunchKind::kMpich: return "MPICH";
    case LaunchKind::kMvapich: return "MVAPICH";
    case LaunchKind::kJsm: return "jsrun";
    case LaunchKind::kFlux: return "Flux";
  }
  ESPALIER_CHECK(false, "kind ", static_cast<int>(kind));
}

Variables process_variables() {
  Variables variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

RankEnvironment detect_environment(const Variables& variables, const RankFlags& flags) {
  const Reader env(variables);
  Claim claim = choose(env, flags);
  if (claim.kind == LaunchKind::kSingle && env.number("WORLD_SIZE").value_or(1) != 1)
    throw UserError(concat("the environment has WORLD_SIZE=", *env.number("WORLD_SIZE"),
                           " but no RANK. Set RANK for each process, or unset WORLD_SIZE."),
                    ExitCode::kUsage);
  RankEnvironment place;
  place.kind = claim.kind;
  place.rank = claim.rank, place.world_size = claim.world_size;
  place.master_address = flags.master_address.value_or("");
  if (place.master_address.empty()) place.master_address = master_address(env, claim);
  place.master_port = flags.master_port ? static_cast<int>(*flags.master_port) : master_port(env, claim);
  const bool at_loopback = internal::is_loopback(place.master_address);
  place.one_machine = claim.local_world_size ? claim.local_world_size == claim.world_size : at_loopback;
  complete_local_ranks(claim, at_loopback);
  check_range(claim);
  place.local_rank = *claim.local_rank, place.local_world_size = *claim.local_world_size;
  place.node_rank = claim.node_rank;
  place.machines_may_change = claim.kind == LaunchKind::kEspalier && env.text(kMachinesMayChangeVariable).has_value();
  place.launcher_store = claim.kind == LaunchKind::kEspalier;
  place.foreign_store = claim.kind == LaunchKind::kTorchrun && env.truth("TORCHELASTIC_USE_AGENT_STORE");
  place.restart_count = env.number("TORCHELASTIC_RESTART_COUNT").value_or(0);
  place.run_id = run_id(env);
  place.explanation = explain(place, claim);
  if (place.kind == LaunchKind::kSingle) place.doubt = doubt_of_single_process(env);
  return place;
}

RankEnvironment detect_environment(const RankFlags& flags) { return detect_environment(process_variables(), flags); }

std::string launched_at_text(SteadyTime time) {
  return std::to_string(std::chrono::nanoseconds(time.time_since_epoch()).count());
}

std::optional<SteadyTime> launched_at(const Variables& variables) {
  const Reader env(variables);
  if (!env.text("ESPALIER_LAUNCH")) return std::nullopt;
  const std::optional<int64_t> nanoseconds = env.number(kLaunchedAtVariable);
  if (!nanoseconds) return std::nullopt;
  const SteadyTime time{std::chrono::nanoseconds(*nanoseconds)};
  return time <= SteadyTime::clock::now() ? std::optional(time) : std::nullopt;
}

}  // namespace espalier::launch
