#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "convert/formats.h"
#include "text/tokenizer.h"

namespace espalier::convert {

HfCodec megatron_bert_codec();  // residual branches that start before the norms, and a final norm
HfCodec bert_codec();           // Devlin et al.'s order: after each sum a norm, and one after the embeddings
MegatronCodec megatron_bert();

// HfCodec::run_tokenizer and complete_tokenizer.
std::optional<RunTokenizer> wordpiece_of_folder(const std::filesystem::path& folder);
void complete_bert_tokenizer(const text::Tokenizer& tokenizer, const ModelConfig& model, nlohmann::ordered_json& json,
                             nlohmann::ordered_json& config);

}  // namespace espalier::convert
