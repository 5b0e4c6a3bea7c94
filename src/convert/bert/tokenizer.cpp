// WordPiece as transformers' BertTokenizer and as Megatron's BertWordPiece have it: the same pieces, but Megatron makes
// samples of texts without [CLS] and [SEP] and adds [BOS] and [EOS].
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/format.h"
#include "convert/bert/internal/bert_codecs.h"
#include "convert/hf/input_files.h"
#include "families/bert/config.h"

namespace espalier::convert {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kNormalizer = "BertNormalizer";

Json json_of_folder(const fs::path& folder, const char* name) {
  const auto file = file_of_folder(folder, name);
  const Json json = file ? Json::parse(read_file(*file), nullptr, /*allow_exceptions=*/false) : Json();
  return json.is_object() ? json : Json::object();
}

bool flag_of(const Json& object, const char* key, bool otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}

// The object under a key if it is of that type, else an empty one.
Json part_of(const Json& object, const char* key, const char* type) {
  const auto found = object.find(key);
  const bool is_it = found != object.end() && found->is_object() && found->value("type", Json()) == type;
  return is_it ? *found : Json::object();
}

// The pieces by id, if they are those of a plain WordPiece and have all ids from 0 on.
std::optional<std::vector<std::string>> pieces_of(const Json& tokenizer) {
  const Json model = part_of(tokenizer, "model", "WordPiece");
  const auto vocabulary = model.find("vocab");
  if (vocabulary == model.end() || !vocabulary->is_object() || part_of(tokenizer, "normalizer", kNormalizer).empty())
    return std::nullopt;
  std::vector<std::string> pieces(vocabulary->size());
  for (const auto& [piece, id] : vocabulary->items()) {
    if (!id.is_number_unsigned() || id.get<size_t>() >= pieces.size() || !pieces[id.get<size_t>()].empty())
      return std::nullopt;
    pieces[id.get<size_t>()] = piece;
  }
  return pieces;
}

// Megatron's wrapper adds two pieces where they do not exist.
int64_t num_ids(const std::vector<std::string>& pieces) {
  auto ids = static_cast<int64_t>(pieces.size());
  for (const char* added : {"[BOS]", "[EOS]"}) ids += std::find(pieces.begin(), pieces.end(), added) == pieces.end();
  return ids;
}

Json template_of(const std::string& cls, const std::string& sep, bool is_pair) {
  const auto token = [](const std::string& piece, int type) {
    return Json{{"SpecialToken", {{"id", piece}, {"type_id", type}}}};
  };
  const auto sequence = [](const char* id, int type) { return Json{{"Sequence", {{"id", id}, {"type_id", type}}}}; };
  Json items = Json::array({token(cls, 0), sequence("A", 0), token(sep, 0)});
  if (is_pair) items.push_back(sequence("B", 1)), items.push_back(token(sep, 1));
  return items;
}

}  // namespace

std::optional<RunTokenizer> wordpiece_of_folder(const fs::path& folder) {
  const Json made = json_of_folder(folder, "tokenizer.json"), config = json_of_folder(folder, "tokenizer_config.json");
  const bool lowercase =
      flag_of(part_of(made, "normalizer", kNormalizer), "lowercase", flag_of(config, "do_lower_case", true));
  RunTokenizer found;
  found.options.type = lowercase ? "BertWordPieceLowerCase" : "BertWordPieceCase";
  found.options.vocab_file = folder / "vocab.txt";
  if (file_of_folder(folder, "vocab.txt")) return found;
  const auto pieces = pieces_of(made);
  if (!pieces) return std::nullopt;
  found.made_files.push_back({"tokenizer/vocab.txt", join(*pieces, "\n") + "\n"});
  found.num_ids = num_ids(*pieces);
  return found;
}

void complete_bert_tokenizer(const text::Tokenizer& tokenizer, const ModelConfig& model, Json& json, Json& config) {
  const text::NamedIds ids = tokenizer.named_ids();
  config["model_max_length"] = families::bert_config(model.settings, {}).max_position_embeddings;
  config.erase("bos_token"), config.erase("eos_token");  // no sample has them
  if (tokenizer.piece_to_id("[UNK]")) config["unk_token"] = "[UNK]";
  if (const Json normalizer = part_of(json, "normalizer", kNormalizer); !normalizer.empty()) {
    config["tokenizer_class"] = "BertTokenizer";
    config["do_lower_case"] = normalizer["lowercase"];
    config["tokenize_chinese_chars"] = true;
  }
  if (!ids.cls || !ids.sep) return;
  const std::string cls = tokenizer.id_to_piece(*ids.cls), sep = tokenizer.id_to_piece(*ids.sep);
  Json special = Json::object();
  for (const auto& [piece, id] : {std::pair{cls, *ids.cls}, {sep, *ids.sep}})
    special[piece] = {{"id", piece}, {"ids", Json::array({id})}, {"tokens", Json::array({piece})}};
  const Json around = {{"type", "TemplateProcessing"},
                       {"single", template_of(cls, sep, /*is_pair=*/false)},
                       {"pair", template_of(cls, sep, /*is_pair=*/true)},
                       {"special_tokens", special}};
  const Json before = json.value("post_processor", Json());
  json["post_processor"] = before.is_null() ? around : Json{{"type", "Sequence"}, {"processors", {before, around}}};
}

}  // namespace espalier::convert
