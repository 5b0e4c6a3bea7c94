#include "apps/engine/train.h"

#include <ATen/Parallel.h>
#include <signal.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>

#include "apps/engine/own_gpu.h"
#include "apps/engine/same_options.h"
#include "base/cpu_isa.h"
#include "base/format.h"
#include "base/kept_log.h"
#include "base/log.h"
#include "base/shell.h"
#include "base/stop_signals.h"
#include "base/whereabouts.h"
#include "config/run_config.h"
#include "cuda/cuda.h"
#include "dist/grid.h"
#include "dist/rendezvous.h"
#include "families/registry.h"
#include "launch/control.h"
#include "launch/cores.h"
#include "launch/environment.h"
#include "launch/hold.h"
#include "launch/peer_watch.h"
#include "store/run_folder.h"
#include "tensor/cpu_allocator.h"
#include "train/job_state.h"
#include "train/run.h"

namespace espalier {
namespace {

using Words = std::vector<std::string>;

std::string command_line_of(const std::string& command, const Words& arguments) {
  std::string line = "espalier " + command;
  for (const std::string& word : arguments) line += " " + shell_word(word);
  return line;
}

// The first rank talks; the others would say the same. From them come only errors, with their number.
void set_up_log(const report::LoggingConfig& logging, const launch::RankEnvironment& place) {
  set_log_level(config::log_level(logging));
  set_log_prefix(place.rank > 0 ? concat("[rank ", place.rank, "] ") : "");
  if (place.rank > 0 && config::log_level(logging) != LogLevel::kDebug) set_log_level(LogLevel::kQuiet);
}

// NCCL is what Megatron's launch lines ask for everywhere.
void say_transport(const config::RunConfig& config, const OptionTable& table, const dist::Grid& grid) {
  if (!grid.device.is_cpu()) {
    log_info("ranks exchange tensors on GPUs by NCCL, those in memory by ", grid.transport);
    return;
  }
  const bool wants_nccl = config.parallel.distributed_backend == config::DistributedBackend::kNccl;
  if (wants_nccl && table.find("--distributed-backend")->given())
    log_info("--distributed-backend nccl: this run is on the CPU, its ranks communicate by ", grid.transport);
  else
    log_info("ranks communicate by ", grid.transport);
}

void say_instruction_set() {
  log_info("instruction set: ", train::instruction_set(),
           lacks_amx_permission() ? " (the processor has AMX, but the system does not let this process use it)" : "");
}

// Where ranks share a machine each keeps to its part of the cores; before any thread starts. A process that was held
// and goes on is bound already.
void set_up_threads(const launch::RankEnvironment& place, std::optional<int64_t>& num_threads, bool given) {
  if (place.local_world_size == 1) return;
  static const launch::CoreShare share = [&] {
    launch::CoreShare own = launch::share_of_cores(place);
    launch::bind_to_cores(own);
    return own;
  }();
  if (!given) num_threads = share.num_threads;
  log_info("each rank: ", share.explanation);
}

dist::Grid make_grid(const config::RunConfig& config, const OptionTable& table, const launch::RankEnvironment& place,
                     const StopSignals& signals) {
  const cuda::Placement compute = cuda::place_process(config.parallel.device, place.local_rank);
  log_info("computing on ", compute.description);
  cuda::check_attention_backend(config.training.attention_backend, compute);
  if (!compute.device.is_cpu() && config.parallel.canonical_reduction)
    throw UserError(
        "--canonical-reduction is of runs on the CPU: kernels of a GPU add some gradients in any order. Give --device "
        "cpu, or leave it out.",
        ExitCode::kUsage);
  if (place.world_size == 1) {
    dist::Grid grid;
    grid.device = compute.device;
    return grid;
  }
  if (!compute.device.is_cpu() && config.parallel.distributed_backend == config::DistributedBackend::kGloo)
    throw UserError(
        "--distributed-backend gloo exchanges tensors in memory, and this run's are on GPUs. Use nccl, or --device "
        "cpu.",
        ExitCode::kUsage);
  dist::GridOptions options;
  options.device = compute.device;
  options.make_device_backend = compute.make_nccl;
  const auto stopped = [&] { return signals.received().has_value(); };
  const auto timeout = std::chrono::minutes(config.parallel.distributed_timeout_minutes);
  options.store = dist::connect_rendezvous(place, stopped);
  dist::assemble(*options.store, {place.rank, place.world_size, timeout, stopped});
  check_same_options(table, place, *options.store);
  check_own_gpu(compute.gpu, place, *options.store);
  options.shared_stages = config::shared_stages(config);
  options.backend.timeout = timeout;
  options.backend.one_machine = place.one_machine;
  options.backend.have_parent = place.has_launcher();
  options.backend.shared_memory = config.parallel.distributed_backend != config::DistributedBackend::kGloo;
  return dist::make_grid(config.grid, place.rank, options);
}

// Without espalier launch the first rank answers espalier ctl itself; of itself alone where there are others.
std::unique_ptr<launch::Control> serve_control(const launch::RankEnvironment& place) {
  if (whereabouts_are_open()) return nullptr;  // its launcher does
  try {
    const WhereaboutsBoard& board = WhereaboutsBoard::of_this_process();
    if (place.rank != 0) return nullptr;
    auto control = std::make_unique<launch::Control>(launch::ControlOptions{.board = board,
                                                                            .node = 0,
                                                                            .first_rank = 0,
                                                                            .num_local_ranks = 1,
                                                                            .world_size = place.world_size,
                                                                            .first_host = "",
                                                                            .stop = [] { kill(getpid(), SIGTERM); },
                                                                            .kill = [] { kill(getpid(), SIGKILL); }});
    control->set_pids({getpid()});
    return control;
  } catch (const UserError& error) {
    log_warning("this run does not answer espalier ctl: ", error.what());
    return nullptr;
  }
}

// Whoever starts a run by hand is told about a damaged checkpoint and decides. Ranks that a launcher starts again would
// fail at the same place each time: they set it aside and continue from the one before. What is thrown is thrown on
// every rank.
void train_from_whole_checkpoint(config::RunConfig& config, const OptionTable& table, const std::string& command_line,
                                 const dist::Grid& grid, const launch::RankEnvironment& place) {
  const config::CheckpointConfig& checkpoint = config.checkpoint;
  while (true) {
    try {
      return train::run(config, table, command_line, grid);
    } catch (const store::DamagedCheckpoint& damaged) {
      if (place.restart_count == 0 || checkpoint.save.empty()) throw;
      std::string cost;
      if (grid.rank == 0) {
        log_warning(damaged.what());
        cost = store::set_damaged_aside(damaged.step_folder(), checkpoint.save).value_or("");
      }
      if (grid.world.gather_texts(cost)[0].empty()) throw;
      log_warning(cost);
    }
  }
}

int train_family(const config::Family& family, const Words& arguments, const StopSignals& signals) {
  set_awaited("the start of the run");
  const launch::RankEnvironment place = launch::detect_environment();
  acknowledge_signals(place.rank == 0);
  config::RunConfig config;
  if (place.kind != launch::LaunchKind::kSingle) config.num_ranks = place.world_size;
  config.stays_on_one_machine = place.one_machine && !place.machines_may_change;
  OptionTable table(concat("espalier train ", family.name), "");
  table.say_notes(false);  // espalier has said them
  Problems problems;
  if (!config::read_run(family, {arguments.begin() + 1, arguments.end()}, config, table, problems)) return 0;
  problems.raise();
  set_up_log(config.logging, place);
  if (place.world_size > 1) log_info(place.explanation);
  set_up_threads(place, config.training.num_threads, table.find("--num-threads")->given());
  const launch::PeerWatch watch(place);
  const std::unique_ptr<launch::Control> control = serve_control(place);
  if (place.world_size > 1) set_awaited("the other processes, all of which must arrive for the run to begin");
  const dist::Grid grid = [&] {
    const WaitsFor waits(Waiting::kOthers, "start", "all ranks");  // with a time limit of its own
    return make_grid(config, table, place, signals);
  }();
  if (place.world_size > 1) say_transport(config, table, grid);
  if (place.world_size > 1) log_info("layout ", spec::to_string(config.grid), " on ", place.world_size, " processes");
  if (!config.parallel.zero_reason.empty()) log_info(config.parallel.zero_reason);
  say_instruction_set();
  train_from_whole_checkpoint(config, table, command_line_of("train", arguments), grid, place);
  set_phase(RunPhase::kExit, config.training.num_steps);
  grid.world.barrier();  // nobody's connections close under another
  return 0;
}

// What a process keeps beside the objects of a run.
void forget_start() {
  set_live_line("");
  keep_log({});  // in the next start another rank may be the first
  tensor::release_free_cpu_memory();
}

}  // namespace

int train_rank(const Words& arguments) {
  const config::Family* const family = arguments.empty() ? nullptr : families::find_family(arguments[0]);
  ESPALIER_CHECK(family != nullptr, "espalier passes the family on");
  while (true) {
    const StopSignals signals;  // those that came before another rank ended were for the start before
    try {
      return train_family(*family, arguments, signals);
    } catch (const dist::StoppedBeforeStart& stopped) {
      log_line(LogLevel::kQuiet, concat(stopped.what(), " before all processes had arrived: the run did not begin"));
      return 0;
    } catch (const UserError& error) {
      // Another rank has ended. Nothing of the run is left in this process, and its state is in the launcher's memory.
      if (error.code() != ExitCode::kLostPeer || !launch::may_be_held()) throw;
      forget_start();
      if (!launch::wait_for_next_start()) throw;
    }
  }
}

}  // namespace espalier
