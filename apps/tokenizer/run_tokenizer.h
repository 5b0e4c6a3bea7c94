// The tokenizer of a training run, where its files exist.
#pragma once

#include <memory>

#include "config/run_config.h"
#include "text/tokenizer.h"

namespace espalier {

// Null where the files that the options name are not there, or none are named.
std::unique_ptr<text::Tokenizer> load_run_tokenizer(const config::TokenizerConfig& config);

}  // namespace espalier
