// Options that were given and that the other options leave without effect: those of loss scaling without --fp16, of
// recompute where nothing is recomputed, of a tokenizer of another type. Upstream ignores them without a word.
#pragma once

#include <string>
#include <vector>

#include "plan/run_config.h"

namespace espalier::plan {

// One message for each, such as "--hysteresis 4 (command line) has no effect: only --fp16 scales the loss". Of options
// on the command line, and of those that a recipe sets to another value than the default (so that the config.toml of a
// run, which has all options, is no reason for messages), but for what depends on folders or the layout. Call it after
// resolve() has found no problem.
std::vector<std::string> unused_options(const RunConfig& config, const OptionTable& table);

}  // namespace espalier::plan
