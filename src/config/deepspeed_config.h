// DeepSpeed's JSON (--deepspeed_config) as a second way to say what options say.
//
// Every key is one of: used, where it stands for an option; without effect, reported once with the reason; refused by
// name with what to use instead. Nobody has to guess which of two truths holds: where the JSON and an option that is
// given differ, the run stops and shows both; but for the loss scale, where DeepSpeed reads its file alone: there the
// file holds, and a warning names the option. A key that is absent, null or "auto" says nothing, but for what DeepSpeed
// itself makes of its absence: no enabled bf16 or fp16 excludes --bf16 or --fp16, stage 0 without zero_optimization,
// and an initial loss scale of 2^16.
#pragma once

#include <string>

#include "config/run_config.h"

namespace espalier::config {

// Reads the file that --deepspeed_config names into the options that are not given, and compares it with those that
// are. Nothing happens without that option. Called between OptionTable::parse() and resolve().
void read_deepspeed_config(RunConfig& config, OptionTable& table, Problems& problems);

// The keys as a Markdown table (docs/megatron-arguments.md).
std::string deepspeed_keys_markdown();

}  // namespace espalier::config
