// Rotary positions in config.json: rope_theta and rope_scaling of transformers 4, rope_parameters of transformers 5.
#pragma once

#include "convert/hf/config.h"
#include "convert/hf/internal/config_reader.h"

namespace espalier::convert {

// Sets the rotary fields of `config`, whose head size and max_position_embeddings are set.
void read_rope(ConfigReader& reader, HfFamily family, families::GptConfig& config, Problems& problems);

// Writes both spellings: transformers 5 reads either, transformers 4 only the old one.
void write_rope(HfFamily family, const families::GptConfig& config, nlohmann::ordered_json& json);

}  // namespace espalier::convert
