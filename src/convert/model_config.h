// Between a model and the configuration that a checkpoint keeps: the options of `espalier train gpt`, as TOML.
#pragma once

#include <filesystem>
#include <string>

#include "plan/run_config.h"
#include "store/manifest.h"
#include "text/tokenizer.h"

namespace espalier::convert {

// What `espalier train gpt --recipe` takes a model from that comes from elsewhere: its options, its tokenizer's, the
// type it computes in.
std::string model_recipe(const spec::GptConfig& model, plan::Precision precision,
                         const text::TokenizerOptions& tokenizer);

// The options for the manifest of its checkpoint. Of a run they say only what must be said: --eval-only, samples as
// long as the model allows, one at a time. UserError that names what `espalier train` cannot do.
std::string imported_config(const spec::GptConfig& model, const std::string& recipe);

// The same model, but for the size of the vocabulary and how it is padded, which no option of the model says.
bool is_same_model(spec::GptConfig a, const spec::GptConfig& b);

// The options that a checkpoint was saved with; model.vocab_size and padded_vocab_size are the manifest's.
plan::RunConfig stored_config(const store::Manifest& manifest, const std::filesystem::path& step_folder);

}  // namespace espalier::convert
