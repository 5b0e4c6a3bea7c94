#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "convert/formats.h"
#include "families/bert/config.h"
#include "text/tokenizer.h"

namespace espalier::convert {

HfCodec megatron_bert_codec();  // residual branches that start before the norms, and a final norm
HfCodec bert_codec();           // Devlin et al.'s order: after each sum a norm, and one after the embeddings
MegatronCodec megatron_bert();

// What of it holds for other models that are made of BERTs.
const std::vector<const char*>& arguments_of_bert();
ModuleName bert_module_name(const std::string& path);
void add_lines_of_bert_model(const store::TorchValue& args, const std::vector<const char*>& names,
                             ArgumentLines& lines);
void put_arguments_of_bert_model(const families::BertConfig& model, store::TorchPairs& pairs);

// HfCodec::run_tokenizer and complete_tokenizer.
std::optional<RunTokenizer> wordpiece_of_folder(const std::filesystem::path& folder);
void complete_bert_tokenizer(const text::Tokenizer& tokenizer, const ModelConfig& model, nlohmann::ordered_json& json,
                             nlohmann::ordered_json& config);

}  // namespace espalier::convert
