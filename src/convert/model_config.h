// A model that comes from elsewhere as options of `espalier train gpt`, in TOML.
#pragma once

#include <string>

#include "families/gpt/config.h"
#include "text/tokenizer.h"

namespace espalier::convert {

// What `espalier train gpt --recipe` takes such a model from: its options, its tokenizer's, the type it computes in.
std::string model_recipe(const families::GptConfig& model, plan::Precision precision,
                         const text::TokenizerOptions& tokenizer);

// The options for the manifest of its checkpoint. Of a run they say only what must be said: --eval-only, samples as
// long as the model allows, one at a time. UserError that names what `espalier train` cannot do.
std::string imported_config(const families::GptConfig& model, const std::string& recipe);

// The model of a saved run, to be written as `format` ("Hugging Face's formats"). A model of a family that is not
// converted is a UserError (kUsage) with the checkpoint's place, `where`.
families::GptConfig gpt_to_convert(const config::RunConfig& run, const std::string& where, const std::string& format);

// The same model, but for the size of the vocabulary and how it is padded, which no option of the model says.
bool is_same_model(families::GptConfig a, const families::GptConfig& b);

}  // namespace espalier::convert
