#include "text/internal/sentencepiece_json.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "base/format.h"
#include "text/internal/base64.h"
#include "text/internal/normalizer.h"
#include "text/internal/sentencepiece_normalizer.h"
#include "text/internal/tokenizer_json.h"
#include "text/utf8.h"

namespace espalier::text::internal {

namespace {

using nlohmann::json;
using Kind = SentencePieceModel::Kind;

// Why tokenizers cannot do what the model says; empty where it can.
std::string obstacle(const SentencePieceModel& model) {
  if (model.kind == Kind::kWord) return "it is a model of whole words, which tokenizers does not have";
  const SentencePieceRules& rules = model.normalizer;
  if (rules.add_dummy_prefix && rules.prefix_is_suffix)
    return "it puts a space after the text (treat_whitespace_as_suffix), which tokenizers does not do";
  if (!rules.add_dummy_prefix && !rules.remove_extra_whitespaces) return "";
  for (const auto& piece : model.pieces)
    if (piece.type == PieceType::kUserDefined)
      return concat("user-defined pieces ('", piece.text,
                    "') are excluded from its handling of spaces, which tokenizers does not do");
  return "";
}

// How many rules a normalizer of tokenizers applies otherwise than SentencePiece, and one of them.
struct Misses {
  size_t count = 0;
  std::string example;
};
Misses count_misses(const std::vector<std::pair<std::string, std::string>>& rules, const json& steps) {
  const std::unique_ptr<Normalizer> normalizer = make_normalizer(JsonPart(steps, "normalizer"));
  Misses misses;
  for (const auto& [key, replacement] : rules) {
    if (valid_utf8_prefix(key) != key.size()) continue;  // no text has it
    Piece piece{key, true};
    normalizer->apply(piece);
    if (piece.text == replacement) continue;
    if (misses.count++ == 0) misses.example = concat("'", key, "' to '", replacement, "'");
  }
  return misses;
}

// tokenizers looks rules up by single characters and short clusters of them only. Between normal forms, those that
// compose characters (NFKC's) are kept.
std::vector<json> map_steps(const CharsMap& map, std::vector<std::string>& notes) {
  if (map.empty()) return {};
  const json precompiled = {{"type", "Precompiled"}, {"precompiled_charsmap", encode_base64(map.blob())}};
  const json composed = {{"type", "NFC"}};
  const auto rules = map.rules();
  std::vector<json> steps = {precompiled}, between = {composed, precompiled, composed};
  Misses misses = count_misses(rules, sequence_json("normalizers", steps));
  if (misses.count > 0) {
    const Misses fewer = count_misses(rules, sequence_json("normalizers", between));
    if (fewer.count < misses.count) misses = fewer, steps = between;
  }
  if (misses.count > 0)
    notes.push_back(concat("of the ", format_count(static_cast<int64_t>(rules.size())),
                           " rules of characters in tokenizer.model, tokenizers does not apply ",
                           format_count(static_cast<int64_t>(misses.count)), " (", misses.example,
                           "): texts with these sequences get other ids there"));
  return steps;
}

json normalizer_json(const SentencePieceRules& rules, std::vector<std::string>& notes) {
  std::vector<json> steps = map_steps(rules.chars_map, notes);
  if (rules.remove_extra_whitespaces) {
    steps.push_back(replace_regex_json("\\A +", ""));
    steps.push_back(replace_regex_json(" {2,}", " "));
  }
  if (rules.add_dummy_prefix) steps.push_back({{"type", "Prepend"}, {"prepend", " "}});
  if (rules.escape_whitespaces) steps.push_back(replace_json(" ", kVisibleBlank));
  const std::string blank(rules.escape_whitespaces ? kVisibleBlank : " ");
  if (rules.remove_extra_whitespaces) steps.push_back(replace_regex_json(blank + "+\\z", ""));
  return sequence_json("normalizers", std::move(steps));
}

json decoder_json(const SentencePieceModel& model) {
  std::vector<json> steps = {replace_json(kVisibleBlank, " ")};
  if (model.byte_fallback) steps.push_back({{"type", "ByteFallback"}});
  steps.push_back({{"type", "Fuse"}});
  if (model.normalizer.add_dummy_prefix || model.normalizer.remove_extra_whitespaces)
    steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return sequence_json("decoders", std::move(steps));
}

json unigram_json(const SentencePieceModel& model) {
  json pieces = json::array();
  for (const auto& piece : model.pieces) pieces.push_back(json::array({piece.text, piece.score}));
  return {{"type", "Unigram"},
          {"unk_id", model.unknown_id},
          {"vocab", std::move(pieces)},
          {"byte_fallback", model.byte_fallback}};
}

// The pairs that make a piece, those of the best piece first; none with the reason where tokenizers, which numbers the
// pairs, would join them in another order.
std::optional<json> merges_json(const SentencePieceModel& model, std::string& why_not) {
  std::unordered_map<std::string, int32_t> ids;
  std::vector<int32_t> by_score;
  for (size_t index = 0; index < model.pieces.size(); ++index) {
    const auto id = static_cast<int32_t>(index);
    if (!model.is_text_piece(id) || model.pieces[index].type == PieceType::kUserDefined) continue;
    ids.emplace(model.pieces[index].text, id);
    by_score.push_back(id);
  }
  const auto piece_of = [&](int32_t id) -> const auto& { return model.pieces[static_cast<size_t>(id)]; };
  std::stable_sort(by_score.begin(), by_score.end(),
                   [&](int32_t a, int32_t b) { return piece_of(a).score > piece_of(b).score; });
  json merges = json::array();
  const SentencePieceModel::Piece* before = nullptr;
  for (const int32_t id : by_score) {
    const auto& piece = piece_of(id);
    const std::string_view text = piece.text;
    bool is_made = false;
    for (size_t cut = static_cast<size_t>(decode_utf8(text.data()).num_bytes); cut < text.size();
         cut += static_cast<size_t>(decode_utf8(text.data() + cut).num_bytes)) {
      const std::string left(text.substr(0, cut)), right(text.substr(cut));
      if (ids.count(left) == 0 || ids.count(right) == 0) continue;
      merges.push_back(json::array({left, right}));
      is_made = true;
    }
    if (is_made && before != nullptr && before->score == piece.score) {
      why_not = concat("the pieces '", before->text, "' and '", piece.text, "' have the same score ", piece.score,
                       ", and tokenizers would not choose the one that comes first in a text");
      return std::nullopt;
    }
    if (is_made) before = &piece;
  }
  return merges;
}

json bpe_json(const SentencePieceModel& model, std::string& why_not) {
  std::vector<std::string> pieces;
  for (const auto& piece : model.pieces) pieces.push_back(piece.text);
  std::optional<json> vocabulary = vocabulary_json(pieces, why_not);
  if (!vocabulary) return nullptr;
  std::optional<json> merges = json::array();
  if (model.kind == Kind::kBpe) merges = merges_json(model, why_not);
  if (!merges) return nullptr;
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", model.pieces[static_cast<size_t>(model.unknown_id)].text},
          {"fuse_unk", true},
          {"byte_fallback", model.byte_fallback},
          {"ignore_merges", false},
          {"vocab", std::move(*vocabulary)},
          {"merges", std::move(*merges)}};
}

// Names of ids, what the wrapper looks for, and user-defined pieces.
json added_json(const SentencePieceModel& model, const SentencePieceUse& use) {
  std::map<int32_t, json> added;
  for (size_t index = 0; index < model.pieces.size(); ++index) {
    const auto& piece = model.pieces[index];
    const auto id = static_cast<int32_t>(index);
    if (piece.type == PieceType::kControl || piece.type == PieceType::kUnknown)
      added[id] = added_token_json(id, piece.text, /*special=*/true);
    if (piece.type == PieceType::kUserDefined) added[id] = added_token_json(id, piece.text, /*special=*/false);
  }
  for (const auto& [id, text] : use.special) added[id] = added_token_json(id, text, /*special=*/true);
  json list = json::array();
  for (auto& [id, token] : added) list.push_back(std::move(token));
  return list;
}

}  // namespace

TokenizerJson sentencepiece_json(const SentencePieceModel& model, const SentencePieceUse& use) {
  TokenizerJson made;
  made.why_not = obstacle(model);
  if (!made.why_not.empty()) return made;
  TokenizerJsonParts parts;
  parts.model = model.kind == Kind::kUnigram ? unigram_json(model) : bpe_json(model, made.why_not);
  if (!made.why_not.empty()) return made;
  parts.normalizer = normalizer_json(model.normalizer, made.notes);
  parts.decoder = decoder_json(model);
  parts.added_tokens = added_json(model, use);
  if (use.first) {
    const std::string& piece = model.pieces[static_cast<size_t>(*use.first)].text;
    const json first = {{"SpecialToken", {{"id", piece}, {"type_id", 0}}}};
    const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
               second = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
    parts.post_processor = {
        {"type", "TemplateProcessing"},
        {"single", json::array({first, text})},
        {"pair", json::array({first, text, first, second})},
        {"special_tokens",
         {{piece, {{"id", piece}, {"ids", json::array({*use.first})}, {"tokens", json::array({piece})}}}}}};
  }
  made.text = tokenizer_json_text(std::move(parts));
  if (model.kind == Kind::kUnigram)
    made.notes.push_back(
        "tokenizers adds the scores of pieces in double precision, SentencePiece in single: where two cuts of a text "
        "have equal sums, it may choose the other one");
  if (model.has_denormalizer) made.notes.push_back("rules of tokenizer.model for decoded text are left out");
  return made;
}

}  // namespace espalier::text::internal
