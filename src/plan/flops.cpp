#include "plan/flops.h"

namespace espalier::plan {

double model_flops(const spec::ModelSpec& model) {
  double forward = 0;
  for (const spec::Depth& depth : model.depths) forward += depth.forward_flops;
  return 3 * forward;
}

double hardware_flops(const spec::ModelSpec& model, int64_t num_recomputed_layers) {
  double forward = 0;
  for (const spec::Depth& depth : model.depths) forward += depth.megatron_flops;
  return (3 + static_cast<double>(num_recomputed_layers) / static_cast<double>(model.num_layers())) * forward;
}

int64_t num_recomputed_layers(const Recompute& recompute, const Partition& partition) {
  int64_t count = 0;
  for (int64_t stage = 0; stage < partition.num_stages; ++stage)
    for (int64_t chunk = 0; chunk < partition.num_chunks; ++chunk)
      count += num_recomputed(recompute, partition.layers(stage, chunk).count());
  return count;
}

}  // namespace espalier::plan
