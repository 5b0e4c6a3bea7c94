// Which foreign formats our families have: the only place that lists them. A family's are values of its own folder
// here (convert/gpt/formats.h), as its layers are one of models/.
#pragma once

#include <string>
#include <vector>

#include "config/family.h"
#include "convert/folding.h"
#include "convert/hf/codec.h"
#include "convert/megatron/codec.h"

namespace espalier::convert {

struct FamilyFormats {
  const config::Family* family = nullptr;
  // Resolved settings that make the same model, whatever the vocabulary.
  bool (*is_same_model)(const config::FamilyConfig& a, const config::FamilyConfig& b) = nullptr;
  std::vector<HfCodec> hugging_face;  // of two that can hold a model, the first is taken
  MegatronCodec megatron;
  // Of a family that multiplies by constants which transformers lack; null: it has none.
  Folding (*fold)(const ModelConfig& model) = nullptr;
};

const std::vector<const FamilyFormats*>& all_formats();

// Of a family without any, which tests bring: a UserError (kUsage) that names those that have some.
const FamilyFormats& formats_of(const config::Family& family);

// The model as Hugging Face's formats have it.
Folding folded(const ModelConfig& model);

// By model_type ("llama"); nullptr if there is none.
const HfCodec* find_hf_codec(const std::string& model_type);
std::vector<std::string> hf_model_types();

}  // namespace espalier::convert
