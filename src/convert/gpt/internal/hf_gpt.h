// What transformers' GPTs have in common, and the codecs of each kind.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "convert/folding.h"
#include "convert/hf/codec.h"
#include "convert/hf/internal/config_reader.h"
#include "convert/hf/internal/map_builder.h"
#include "convert/hf/internal/reasons.h"
#include "families/gpt/config.h"

namespace espalier::convert {

HfCodec gpt2_codec();
HfCodec bloom_codec();
std::vector<HfCodec> llama_like_codecs();  // those with gated MLPs, rotary positions and RMS norms

Folding fold_mup(const ModelConfig& model);

families::GptConfig gpt_of(const ModelConfig& model);
void set_gpt(const families::GptConfig& config, HfModel& model);

// Keys that all of them have, or that would change the model.
families::GptConfig read_common_gpt(ConfigReader& reader, const HfModel& model, bool is_tied_unless_said);
void write_common_gpt(const families::GptConfig& config, nlohmann::ordered_json& json);
// Head size and groups where they are not given, and whether sizes divide.
void read_gpt_heads(ConfigReader& reader, families::GptConfig& config);

bool heads_fill_hidden(const families::GptConfig& config);
// Of no family here are logits or attention scores capped (Gemma 2's are).
void check_not_capped(const families::GptConfig& config, Reasons& reasons);
// GPT-2 and BLOOM.
void check_old_style_gpt(const families::GptConfig& config, Reasons& reasons);
// Removes older spellings of what is written under its present name.
void erase_old_spellings(nlohmann::ordered_json& json);

// Whether names begin with that of the base model ("transformer."), which folders of the base model alone lack.
std::string prefix_of_base(const HfTensors& theirs, const std::string& prefix, const std::string& embedding);
// The output layer, or with a tied one what may be stored of it in addition to the embedding.
void map_gpt_head(HfMapBuilder& builder, const families::GptConfig& config, const HfTensors& theirs);
// Buffers that some releases store in addition to the weights (masks, frequencies): not part of the model.
bool is_gpt_buffer(const std::string& name, const ModelConfig& model);

}  // namespace espalier::convert
