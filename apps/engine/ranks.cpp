#include "apps/engine/ranks.h"

#include <ATen/Parallel.h>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "apps/engine/own_gpu.h"
#include "apps/engine/same_options.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "base/whereabouts.h"
#include "cuda/cuda.h"
#include "dist/ordered_sums.h"
#include "dist/rendezvous.h"
#include "launch/cores.h"

namespace espalier {
namespace {

dist::Grid meet(const launch::RankEnvironment& place, const cuda::Placement& compute,
                const std::function<bool()>& stopped) {
  const WaitsFor waits(Waiting::kOthers, "start", "all ranks");  // with a time limit of its own
  dist::GridOptions options;
  options.store = dist::connect_rendezvous(place, stopped);
  dist::assemble(
      *options.store,
      {.rank = place.rank, .num_ranks = place.world_size, .timeout = options.backend.timeout, .stopped = stopped});
  NamedValues values = {{"what it computes on", compute.device.is_cpu() ? "the CPU" : "a GPU"}};
  add_one_machine(place, values);
  check_same_values(values, place, *options.store);
  check_own_gpu(compute.gpu, place, *options.store);
  options.backend.one_machine = place.one_machine;
  options.backend.have_parent = place.has_launcher();
  options.device = compute.device;
  options.make_device_backend = compute.make_nccl;
  dist::Grid grid = dist::make_grid({.tensor = place.world_size}, place.rank, options);
  if (compute.device.is_cpu() && grid.transport != "shared memory") grid.tensor = dist::adding_in_order(grid.tensor);
  return grid;
}

// Says nothing of the CPU where nothing else was asked for.
cuda::Placement choose_device(config::Device asked, int64_t local_rank) {
  const cuda::Placement compute = cuda::place_process(asked, local_rank);
  if (asked != config::Device::kCpu) log_info("computing on ", compute.description);
  return compute;
}

}  // namespace

EngineRanks::EngineRanks(const std::string& command, const Asked& asked, std::function<bool()> stopped)
    : stopped_(std::move(stopped)) {
  std::optional<int64_t> num_threads = asked.num_threads;
  if (asked.size == 1) {
    at::set_num_threads(static_cast<int>(num_threads.value_or(num_usable_cores())));
    // Where others do the same beside it, each has a GPU of its own.
    const int64_t local_rank = asked.device == config::Device::kCpu ? 0 : launch::detect_environment().local_rank;
    grid_.device = choose_device(asked.device, local_rank).device;
    return;
  }
  const launch::RankEnvironment place = launch::detect_environment();
  if (place.world_size != asked.size)
    throw UserError(concat("--tensor-model-parallel-size ", asked.size, " needs ", asked.size, " processes, but there ",
                           place.world_size == 1 ? "is 1" : concat("are ", place.world_size),
                           ": espalier launch --nproc-per-node ", asked.size, " ", command, " ..."),
                    ExitCode::kUsage);
  if (place.rank > 0) {
    set_log_level(LogLevel::kQuiet);
    set_log_prefix(concat("[rank ", place.rank, "] "));
  }
  if (place.local_world_size > 1) {
    const launch::CoreShare share = launch::share_of_cores(place);
    launch::bind_to_cores(share);
    if (!num_threads) num_threads = share.num_threads;
    log_info("each rank: ", share.explanation);
  }
  at::set_num_threads(static_cast<int>(num_threads.value_or(num_usable_cores())));
  watch_.emplace(place);
  grid_ = meet(place, choose_device(asked.device, place.local_rank), stopped_);
  log_info("the model is divided over ", asked.size, " processes, which communicate by ", grid_.transport);
}

void EngineRanks::check_alone(const std::string& what) const {
  if (grid_.world.size() == 1) return;
  throw UserError(concat("--tensor-model-parallel-size ", grid_.world.size(), ": ", what,
                         " runs in one process; leave the option out"),
                  ExitCode::kUsage);
}

bool EngineRanks::lead(infer::LoadedModel& loaded) {
  if (grid_.world.size() == 1) return true;
  if (grid_.rank == 0) {
    loaded.leader = &leader_.emplace(grid_.tensor);
    return true;
  }
  infer::follow(*loaded.model, loaded.weights(), grid_.tensor, stopped_);
  return false;
}

}  // namespace espalier
