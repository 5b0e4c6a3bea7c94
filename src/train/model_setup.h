// From the options of a run to the typed settings of the libraries.
#pragma once

#include <ATen/core/Tensor.h>

#include "config/run_config.h"
#include "data/data_plan.h"
#include "dist/reduce.h"
#include "optim/optimizer.h"
#include "pipeline/recompute.h"
#include "text/tokenizer.h"
#include "train/make_batch.h"

namespace espalier::train {

at::ScalarType compute_type(plan::Precision precision);
optim::OptimizerConfig optimizer_config(const config::RunConfig& config);
dist::ReduceOptions reduce_options(const config::ParallelConfig& config);
pipeline::RecomputePlan recompute_plan(const plan::Recompute& recompute);
text::TokenizerOptions tokenizer_options(const config::TokenizerConfig& config);
// The number of samples asked of every set follows from steps, intervals and batch (formats: Megatron's target counts).
data::DataSetOptions data_set_options(const config::RunConfig& config);
// Refuses resets and EOD masks when the tokenizer has no end-of-document token.
MaskOptions mask_options(const config::DataConfig& config, const text::Tokenizer& tokenizer);

}  // namespace espalier::train
