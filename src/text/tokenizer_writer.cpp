#include "text/tokenizer_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace espalier::text {
namespace {

using nlohmann::ordered_json;

std::string json_text(std::string_view text) { return nlohmann::json(text).dump(); }

ordered_json byte_level(bool add_prefix_space, bool trim_offsets, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", trim_offsets},
          {"use_regex", use_regex}};
}

// GPT-2's pattern is ByteLevel's own; another is in front of it, as in BLOOM's tokenizer.json.
ordered_json pre_tokenizer_json(PieceRule rule) {
  if (rule == PieceRule::kGpt2) return byte_level(false, true, true);
  const ordered_json split = {
      {"type", "Split"}, {"pattern", {{"Regex", pattern_of_rule(rule)}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", ordered_json::array({split, byte_level(false, true, false)})}};
}

ordered_json added_tokens_json(const std::vector<std::string>& special_tokens) {
  ordered_json list = ordered_json::array();
  for (size_t id = 0; id < special_tokens.size(); ++id) {
    list.push_back({{"id", id},
                    {"content", special_tokens[id]},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", true}});
  }
  return list;
}

// The vocabulary and the merges are written directly: as JSON objects they would be searched for every key.
std::string model_json(const TrainedBpe& bpe) {
  std::string text =
      "{\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
      "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n"
      "    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n    \"vocab\": {";
  for (size_t id = 0; id < bpe.pieces.size(); ++id) {
    text += (id == 0 ? "\n      " : ",\n      ") + json_text(bpe.pieces[id]) + ": " + std::to_string(id);
  }
  text += "\n    },\n    \"merges\": [";
  const char* separator = "\n      [\n        ";
  for (const auto& [left, right] : bpe.merges) {
    text += separator + json_text(bpe.pieces[static_cast<size_t>(left)]) + ",\n        " +
            json_text(bpe.pieces[static_cast<size_t>(right)]) + "\n      ]";
    separator = ",\n      [\n        ";
  }
  return text + (bpe.merges.empty() ? "]\n  }" : "\n    ]\n  }");
}

std::string tokenizer_json(const TrainedBpe& bpe, PieceRule rule) {
  const ordered_json head = {{"version", "1.0"},
                             {"truncation", nullptr},
                             {"padding", nullptr},
                             {"added_tokens", added_tokens_json(bpe.special_tokens)},
                             {"normalizer", nullptr},
                             {"pre_tokenizer", pre_tokenizer_json(rule)},
                             {"post_processor", byte_level(true, false, rule == PieceRule::kGpt2)},
                             {"decoder", byte_level(true, true, true)}};
  std::string text = head.dump(2);
  text.resize(text.size() - 2);  // "\n}"
  return text + ",\n  \"model\": " + model_json(bpe) + "\n}";
}

std::string vocab_json(const TrainedBpe& bpe) {
  std::string text = "{";
  for (size_t id = 0; id < bpe.pieces.size(); ++id) {
    text += (id == 0 ? "" : ",") + json_text(bpe.pieces[id]) + ":" + std::to_string(id);
  }
  return text + "}";
}

std::string merges_txt(const TrainedBpe& bpe) {
  std::string text = "#version: 0.2\n";
  for (const auto& [left, right] : bpe.merges) {
    text += bpe.pieces[static_cast<size_t>(left)] + " " + bpe.pieces[static_cast<size_t>(right)] + "\n";
  }
  return text;
}

// The names that transformers has for BERT's tokens.
constexpr std::pair<const char*, const char*> kNamedTokens[] = {
    {"pad_token", "[PAD]"}, {"cls_token", "[CLS]"}, {"sep_token", "[SEP]"}, {"mask_token", "[MASK]"}};

std::string config_json(const std::string& eod, const std::vector<std::string>& special_tokens) {
  ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  if (!eod.empty()) config["eos_token"] = eod;
  for (const auto& [name, token] : kNamedTokens)
    if (std::find(special_tokens.begin(), special_tokens.end(), token) != special_tokens.end()) config[name] = token;
  return config.dump(2) + "\n";
}

}  // namespace

std::vector<std::filesystem::path> tokenizer_files_written(PieceRule rule, const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files = {folder / "tokenizer.json", folder / "tokenizer_config.json"};
  if (rule == PieceRule::kGpt2) files.insert(files.end(), {folder / "vocab.json", folder / "merges.txt"});
  return files;
}

TokenizerWriter::TokenizerWriter(PieceRule rule, const std::filesystem::path& folder) : rule_(rule), folder_(folder) {
  for (const std::filesystem::path& file : tokenizer_files_written(rule, folder)) files_.emplace_back(file);
}

void TokenizerWriter::write(const TrainedBpe& bpe, const std::string& eod) {
  std::vector<std::string> contents = {tokenizer_json(bpe, rule_), config_json(eod, bpe.special_tokens)};
  if (rule_ == PieceRule::kGpt2) contents.insert(contents.end(), {vocab_json(bpe), merges_txt(bpe)});
  std::vector<PendingFile*> all;
  for (size_t at = 0; at < files_.size(); ++at) {
    write_synced(files_[at], contents[at]);
    all.push_back(&files_[at]);
  }
  move_into_place(all);
  folder_.keep();
}

}  // namespace espalier::text
