// From the options of a run to the typed settings of the libraries.
#pragma once

#include <ATen/core/Tensor.h>

#include "config/run_config.h"
#include "dist/reduce.h"
#include "optim/optimizer.h"

namespace espalier::train {

at::ScalarType compute_type(plan::Precision precision);
optim::OptimizerConfig optimizer_config(const config::RunConfig& config);
dist::ReduceOptions reduce_options(const config::ParallelConfig& config);

}  // namespace espalier::train
