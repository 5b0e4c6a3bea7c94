// config.json of Hugging Face's transformers, and the model that it describes.
//
//   HfModel model = read_hf_config(read_file("config.json"), "config.json", {});   // model.config is ours
//   std::string text = hf_config_json(model);                                      // and back
//
// Every key that changes what a model computes is either covered by the family's settings or refused by its name; keys
// that the model type does not know are listed, not dropped in silence. Defaults of absent keys are those of
// transformers.
#pragma once

#include <optional>
#include <string>

#include "convert/hf/codec.h"

namespace espalier::convert {

// Throws UserError (kBadData) that lists every problem: wrong types, sizes that do not fit, keys that are not covered.
HfModel read_hf_config(const std::string& text, const std::string& origin, const HfTensors& stored);

// What it says first: which codec reads it, and the rows of the embedding.
struct HfOrigin {
  const HfCodec* codec = nullptr;
  int64_t vocab_rows = 0;
};
HfOrigin origin_of(const std::string& text, const std::string& origin);

// The codec for a model: `preferred`, unless it is null, where it can hold it, else the first that can. UserError with
// the reasons of the nearest where none can.
const HfCodec& choose_hf_codec(const ModelConfig& config, const HfCodec* preferred);

// What an older config.json of the same model says besides its shape (token ids, harmless keys) is kept: `base`, empty
// or its text. Rows of the vocabulary are model.config's padded_size.
std::string hf_config_json(const HfModel& model, const std::string& base);

}  // namespace espalier::convert
