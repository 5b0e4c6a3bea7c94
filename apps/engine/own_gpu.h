// Each process of a run has a GPU to itself.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "launch/environment.h"

namespace espalier {

// A scheduler may show each process one GPU; it must not be the same one. `gpu`: cuda::Placement::gpu, empty on the
// CPU. All processes call this, with the store at which they met: a UserError in those that came too late for theirs.
void check_own_gpu(const std::string& gpu, const launch::RankEnvironment& place, c10d::Store& store);

}  // namespace espalier
