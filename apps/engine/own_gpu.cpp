#include "apps/engine/own_gpu.h"

#include "base/error.h"

namespace espalier {

void check_own_gpu(const std::string& gpu, const launch::RankEnvironment& place, c10d::Store& store) {
  if (gpu.empty() || store.add(concat("gpu/", place.restart_count, "/", gpu), 1) == 1) return;
  throw UserError(
      concat("process ", place.local_rank, " of this machine was given a GPU that another process has. Give ",
             "each its own (CUDA_VISIBLE_DEVICES, or the scheduler's GPUs per task), or start fewer."),
      ExitCode::kUsage);
}

}  // namespace espalier
