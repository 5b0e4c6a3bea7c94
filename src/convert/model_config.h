// A model that comes from elsewhere, or goes there, as options of one of our families.
#pragma once

#include <set>
#include <string>

#include "config/family.h"
#include "config/run_config.h"
#include "plan/run_shape.h"
#include "spec/model_spec.h"
#include "spec/vocabulary.h"
#include "text/tokenizer.h"

namespace espalier::convert {

struct ModelConfig {
  const config::Family* family = nullptr;
  config::FamilyConfig settings;  // resolved options of the family
  spec::Vocabulary vocabulary;
  int64_t longest_sequence = 0;  // that it takes
};

ModelConfig model_of(const config::RunConfig& run);
spec::ModelSpec spec_of(const ModelConfig& model);

// What `espalier train FAMILY --recipe` takes such a model from: its options, its tokenizer's, the type it computes in.
std::string model_recipe(const ModelConfig& model, plan::Precision precision, const text::TokenizerOptions& tokenizer);

// The options for the manifest of its checkpoint. Of a run they say only what must be said: --eval-only, samples as
// long as the model allows, one at a time. UserError that names what `espalier train` cannot do.
std::string imported_config(const ModelConfig& model, const std::string& recipe);

// The rows of `espalier train FAMILY` that say what the model is: size, shape, regularization, initialization.
std::set<std::string> names_of_model_rows(const config::Family& family);

// The same model, but for the size of the vocabulary and how it is padded, which no option of the model says.
bool is_same_model(const ModelConfig& a, const ModelConfig& b);

}  // namespace espalier::convert
