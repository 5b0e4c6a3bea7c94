// The rows of `espalier train` that are not in options.cpp.
#pragma once

#include "config/run_config.h"

namespace espalier::config::internal {

void add_learning_rate(OptionTable& table, RunConfig& config);
void add_weight_decay_ramp(OptionTable& table, ScheduleConfig& schedule);  // in the present group
// Which optimizer, and what only some of them read.
void add_optimizer(OptionTable& table, spec::OptimizerSettings& optimizer);
void add_distributed(OptionTable& table, spec::GridShape& grid, ParallelConfig& parallel);
void add_zero(OptionTable& table, ParallelConfig& parallel);
void add_validation(OptionTable& table, DataConfig& data);
void add_data(OptionTable& table, RunConfig& config);
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
// What only Argonne's Megatron-DeepSpeed has.
void add_argonne_model(OptionTable& table);
void add_argonne_optimizers(OptionTable& table);
void add_argonne_training(OptionTable& table);
void add_argonne_distributed(OptionTable& table);
void add_argonne_data(OptionTable& table);
void add_argonne_logging(OptionTable& table);
void add_argonne_families(OptionTable& table);
// What only NVIDIA's Megatron-LM has.
void add_nvidia_model(OptionTable& table);
void add_nvidia_training(OptionTable& table);
void add_nvidia_systems(OptionTable& table);

// What Hugging Face's Trainer, nanoGPT, llm.c and others call these options.
void add_names_elsewhere(OptionTable& table);

}  // namespace espalier::config::internal
