// The rows that name a tokenizer, for every command that needs one.
#pragma once

#include <memory>

#include "base/options.h"
#include "text/tokenizer.h"

namespace espalier {

// --tokenizer-type, --vocab-file, --merge-file, --tokenizer-name-or-path. Returns the row of --tokenizer-type, so that
// a command can require it.
Option& add_tokenizer_options(OptionTable& table, text::TokenizerOptions& options);

// Null, with the reason among the problems, if it cannot be loaded.
std::unique_ptr<text::Tokenizer> load_tokenizer(const text::TokenizerOptions& options, Problems& problems);

}  // namespace espalier
