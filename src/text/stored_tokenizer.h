// The tokenizer that travels with a checkpoint.
#pragma once

#include <filesystem>
#include <memory>

#include "text/tokenizer.h"

namespace espalier::text {

// Its files are in `folder`, the tokenizer/ of a checkpoint, under their usual names. A UserError that says what to do
// where the checkpoint has none.
std::unique_ptr<Tokenizer> load_stored_tokenizer(const TokenizerOptions& options, const std::filesystem::path& folder);

}  // namespace espalier::text
