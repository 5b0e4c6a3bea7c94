// config.json of Hugging Face's transformers, and the model that it describes.
//
//   HfModel model = read_hf_config(read_file("config.json"), "config.json");   // model.config is ours
//   std::string text = hf_config_json(model);                                  // and back
//
// Every key that changes what a model computes is either covered by families::GptConfig or refused by its name; keys
// that the model's family does not know are listed, not dropped in silence. Defaults of absent keys are those of
// transformers for the family.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "families/gpt/config.h"
#include "store/safetensors.h"

namespace espalier::convert {

enum class HfFamily { kGpt2, kBloom, kLlama, kMistral, kQwen2, kQwen3, kPhi3 };

// One row for each family.
struct HfFamilyNames {
  HfFamily family;
  const char* model_type;    // "llama"
  const char* architecture;  // "LlamaForCausalLM"
};
const std::vector<HfFamilyNames>& hf_families();
const HfFamilyNames& names_of(HfFamily family);
bool is_llama_like(HfFamily family);  // those with gated MLPs, rotary positions and RMS norms

struct HfModel {
  HfFamily family = HfFamily::kGpt2;
  // vocab_size and padded_vocab_size are both config.json's vocab_size: the rows of the embedding.
  families::GptConfig config;
  std::optional<store::DType> dtype;  // that the weights are said to have: fp32, fp16 or bf16
  std::vector<std::string> notes;     // for people: keys that are not known and taken to change nothing, and the like
};

// Throws UserError (kBadData) that lists every problem: wrong types, sizes that do not fit, keys that are not covered.
HfModel read_hf_config(const std::string& text, const std::string& origin);

// Why a family of transformers cannot hold a model, one line for each reason; empty where it can.
std::vector<std::string> obstacles(HfFamily family, const families::GptConfig& config);

// The family for a model: `preferred` where it can hold it, else the first that can. UserError with the reasons of the
// nearest families where none can.
HfFamily choose_family(const families::GptConfig& config, std::optional<HfFamily> preferred);

// What an older config.json and generation_config.json of the same model say beside its shape (token ids, harmless
// keys) is kept: `base`, empty or the text of that config.json. `model.config.padded_vocab_size` becomes vocab_size.
std::string hf_config_json(const HfModel& model, const std::string& base);

}  // namespace espalier::convert
