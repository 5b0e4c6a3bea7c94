// The rows of `espalier train gpt` that do not stand in options_gpt.cpp.
#pragma once

#include "plan/run_config.h"

namespace espalier::plan::internal {

void add_distributed(OptionTable& table, spec::GridShape& grid, ParallelConfig& parallel);
void add_zero(OptionTable& table, ParallelConfig& parallel);
void add_deepspeed(OptionTable& table, ParallelConfig& parallel);

// Those that Megatron's scripts may hold and that change nothing here, or are refused. Each function adds them to the
// group in which upstream has them.
void add_network_size_inert(OptionTable& table);
void add_regularization_inert(OptionTable& table);
void add_training_inert(OptionTable& table);
void add_recompute_inert(OptionTable& table);
void add_initialization_inert(OptionTable& table);
void add_learning_rate_inert(OptionTable& table);
void add_checkpointing_inert(OptionTable& table);
void add_mixed_precision_inert(OptionTable& table);
void add_distributed_inert(OptionTable& table);
void add_tokenizer(OptionTable& table, TokenizerConfig& tokenizer);
void add_data_inert(OptionTable& table);
void add_logging_inert(OptionTable& table);
void add_zero_inert(OptionTable& table);
// Rows of other model families: autoresume, retrieval, vision.
void add_families_inert(OptionTable& table);
void add_deepspeed_inert(OptionTable& table);

}  // namespace espalier::plan::internal
