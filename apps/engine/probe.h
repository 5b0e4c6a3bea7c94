// espalier-engine probe: what the engine finds on this machine, for `espalier doctor`.
#pragma once

#include <string>
#include <vector>

namespace espalier {

// Prints one JSON object: libtorch, kernels, best_kernels, gpus, cuda_plugin ("loads", or why not).
int probe(const std::vector<std::string>& arguments);

}  // namespace espalier
