// Between a model and the configuration that a checkpoint keeps: the options of `espalier train gpt`, as TOML.
#pragma once

#include <filesystem>
#include <string>

#include "plan/run_config.h"
#include "store/manifest.h"
#include "text/tokenizer.h"

namespace espalier::convert {

// The options that make this model, for the manifest of a checkpoint that comes from elsewhere. Of a run it says only
// what the options require: --eval-only, samples as long as the model allows, one at a time. UserError that names
// what `espalier train` cannot do.
std::string imported_config(const spec::GptConfig& model, plan::Precision precision,
                            const text::TokenizerOptions& tokenizer);

// The options that a checkpoint was saved with; model.vocab_size and padded_vocab_size are the manifest's.
plan::RunConfig stored_config(const store::Manifest& manifest, const std::filesystem::path& step_folder);

}  // namespace espalier::convert
