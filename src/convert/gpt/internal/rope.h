// Rotary positions in config.json: rope_theta and rope_scaling of transformers 4, rope_parameters of transformers 5.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "convert/hf/internal/config_reader.h"
#include "families/gpt/config.h"

namespace espalier::convert {

enum class LlamaKind { kLlama, kMistral, kQwen2, kQwen3, kPhi3 };
const char* model_type_of(LlamaKind kind);

// Sets the rotary fields of `config`, whose head size and max_position_embeddings are set.
void read_rope(ConfigReader& reader, LlamaKind kind, families::GptConfig& config);

// Writes both spellings: transformers 5 reads either, transformers 4 only the old one.
void write_rope(LlamaKind kind, const families::GptConfig& config, nlohmann::ordered_json& json);

}  // namespace espalier::convert
