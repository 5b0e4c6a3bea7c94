#include "text/hf_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "text/chat_tokenizer.h"
#include "text/internal/added_tokens.h"
#include "text/internal/bert_words.h"
#include "text/internal/byte_level.h"
#include "text/internal/decoder.h"
#include "text/internal/hf_model.h"
#include "text/internal/normalizer.h"
#include "text/internal/post_processor.h"
#include "text/internal/pre_tokenizer_steps.h"
#include "text/internal/tokenizer_file.h"
#include "text/internal/tokenizer_json.h"
#include "text/internal/word_cache.h"
#include "text/utf8.h"

namespace espalier::text {

namespace {

using namespace internal;

constexpr const char* kCompanions[] = {"tokenizer_config.json", "special_tokens_map.json", "generation_config.json",
                                       "chat_template.jinja"};

// Everything that a tokenizer.json says. Immutable once read.
struct HfParts {
  HfModel model;
  std::unique_ptr<Normalizer> normalizer;  // null: none
  AddedTokens added;
  PreTokenizerSteps pre_tokenizer;
  PostProcessor post_processor;
  std::unique_ptr<Decoder> decoder;  // null: pieces are joined by blanks
  const BertWords* bert = nullptr;   // the normalizer's, where words can be cut and looked up in one go
};

std::string extra_token(int64_t number) { return "<extra_id_" + std::to_string(number) + ">"; }

class HfEncoder final : public Encoder {
 public:
  explicit HfEncoder(const HfParts& parts) : parts_(parts) {
    if (parts.model.byte_bpe)
      bytes_.emplace(*parts.model.byte_bpe);
    else
      words_.emplace();
  }

  // What the post-processor puts around a text is left out.
  void encode_bare(std::string_view text, std::vector<int32_t>& ids) {
    encode_text(repair_utf8(text, repaired_, num_replaced_), ids);
  }

  void encode(std::string_view text, std::vector<int32_t>& ids) override {
    const std::string_view valid = repair_utf8(text, repaired_, num_replaced_);
    for (const PostProcessor::Item& item : parts_.post_processor.items) {
      if (item.is_text)
        encode_text(valid, ids);
      else
        ids.insert(ids.end(), item.ids.begin(), item.ids.end());
    }
  }

 private:
  using Part = AddedTokenFinder::Part;

  void encode_text(std::string_view text, std::vector<int32_t>& ids) {
    raw_parts_.clear();
    parts_.added.raw().cut(text, raw_parts_);
    for (const Part& part : raw_parts_) {
      if (part.id >= 0)
        ids.push_back(part.id);
      else
        encode_raw(part.text, part.text.data() == text.data(), ids);
    }
  }

  // Text in which no added token is left that is searched before normalization.
  void encode_raw(std::string_view text, bool at_origin, std::vector<int32_t>& ids) {
    if (parts_.bert) return encode_bert(text, ids);
    if (!parts_.normalizer && parts_.added.normalized().empty()) return encode_normalized(text, at_origin, ids);
    Piece piece{std::string(text), at_origin};
    if (parts_.normalizer) parts_.normalizer->apply(piece);
    normalized_parts_.clear();
    parts_.added.normalized().cut(piece.text, normalized_parts_);
    for (const Part& part : normalized_parts_) {
      if (part.id >= 0)
        ids.push_back(part.id);
      else
        encode_normalized(part.text, piece.at_origin && part.text.data() == piece.text.data(), ids);
    }
  }

  void encode_bert(std::string_view text, std::vector<int32_t>& ids) {
    parts_.bert->for_each_run(text, [&](std::string_view run) {
      words_->append(run, ids, [&](std::vector<int32_t>& made) {
        parts_.bert->for_each_word(
            run, scratch_.text, [&](std::string_view word) { parts_.model.words->encode_word(word, scratch_, made); });
      });
    });
  }

  void encode_normalized(std::string_view text, bool at_origin, std::vector<int32_t>& ids) {
    const PreTokenizerSteps& steps = parts_.pre_tokenizer;
    if (steps.rule && steps.bytes_last && bytes_) {
      if (!steps.prefix_blank || text[0] == ' ') return bytes_->encode(*steps.rule, text, ids);
      prefixed_.assign(1, ' ').append(text);
      return bytes_->encode(*steps.rule, prefixed_, ids);
    }
    if (text.empty()) return;
    steps.cut({text, at_origin}, [&](const PieceView& piece) {
      if (bytes_) return bytes_->encode_piece(piece.text, ids);
      if (!steps.bytes_last) return encode_word(piece.text, ids);
      encode_word(piece_of_bytes(piece.text),
                  ids);  // bytes into their characters: the model is not byte-level after all
    });
  }

  void encode_word(std::string_view word, std::vector<int32_t>& ids) {
    words_->append(word, ids,
                   [&](std::vector<int32_t>& made) { parts_.model.words->encode_word(word, scratch_, made); });
  }

  const HfParts& parts_;
  std::optional<ByteBpeEncoder> bytes_;
  std::optional<WordCache> words_;
  WordScratch scratch_;
  std::vector<Part> raw_parts_, normalized_parts_;
  std::string repaired_, prefixed_;
};

class HfTokenizer final : public Tokenizer, public AddsSpecialTokens {
 public:
  HfTokenizer(std::filesystem::path file, HfParts parts, int64_t extra_ids)
      : file_(std::move(file)), parts_(std::move(parts)), extra_ids_(extra_ids) {
    vocab_size_ = static_cast<int64_t>(parts_.model.pieces.size());
    const auto& added = parts_.added.by_id();
    if (!added.empty()) vocab_size_ = std::max<int64_t>(vocab_size_, added.rbegin()->first + 1);
  }

  std::unique_ptr<Encoder> new_encoder() const override { return std::make_unique<HfEncoder>(parts_); }

  std::vector<int32_t> encode_bare(std::string_view text) const override {
    std::vector<int32_t> ids;
    HfEncoder(parts_).encode_bare(text, ids);
    return ids;
  }

  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const override {
    std::vector<std::string> pieces;
    pieces.reserve(ids.size());
    for (const int32_t id : ids) {
      std::string piece = decoded_piece(id);
      if (piece.empty() || (skip_special_tokens && parts_.added.is_special(piece))) continue;
      pieces.push_back(std::move(piece));
    }
    if (parts_.decoder && !pieces.empty()) parts_.decoder->apply(pieces);
    std::string text;
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (!parts_.decoder && i > 0) text += ' ';
      text += pieces[i];
    }
    return text;
  }

  int64_t vocab_size() const override { return vocab_size_; }
  std::optional<int32_t> eod() const override { return named_.eos; }
  NamedIds named_ids() const override { return named_; }
  void set_named_ids(NamedIds named) { named_ = named; }
  // The file itself, and what --vocab-extra-ids added to it.
  TokenizerJson tokenizer_json() const override {
    if (extra_ids_ == 0) return {.text = read_file(file_), .why_not = "", .notes = {}};
    nlohmann::json content = read_json_file(file_);
    nlohmann::json& added = content["added_tokens"];
    if (added.is_null()) added = nlohmann::json::array();
    for (int64_t i = 0; i < extra_ids_; ++i) {
      const std::string token = extra_token(i);
      const std::optional<int32_t> id = piece_to_id(token);
      const bool is_listed = std::any_of(added.begin(), added.end(),
                                         [&](const auto& entry) { return entry.value("content", "") == token; });
      if (!is_listed) added.push_back(added_token_json(id.value(), token, true));
    }
    return {.text = content.dump(1) + "\n", .why_not = "", .notes = {}};
  }
  std::string chat_template() const override { return chat_template_; }
  void set_chat_template(std::string text) { chat_template_ = std::move(text); }

  std::string id_to_piece(int32_t id) const override {
    const auto added = parts_.added.by_id().find(id);
    if (added != parts_.added.by_id().end()) return added->second.content;
    return id >= 0 && static_cast<size_t>(id) < parts_.model.pieces.size()
               ? parts_.model.pieces[static_cast<size_t>(id)]
               : std::string();
  }
  std::optional<int32_t> piece_to_id(std::string_view piece) const override {
    const int32_t added = parts_.added.find(piece);
    if (added >= 0) return added;
    const auto found = parts_.model.vocabulary->find(std::string(piece));
    return found == parts_.model.vocabulary->end() ? std::nullopt : std::optional(found->second);
  }
  std::string kind() const override {
    std::string text = (parts_.model.words ? parts_.model.words->name() : "byte-level BPE") + "; ";
    const PreTokenizerSteps& steps = parts_.pre_tokenizer;
    text += steps.rule ? "pieces of " + name_of_rule(*steps.rule) : concat(steps.steps.size(), " steps cut pieces");
    return text + (parts_.normalizer ? "; normalized" : "");
  }
  std::vector<int32_t> special_ids() const override {
    std::vector<int32_t> ids;
    for (const auto& [id, token] : parts_.added.by_id()) {
      if (parts_.added.is_special(token.searched)) ids.push_back(id);
    }
    return ids;
  }
  std::string description() const override { return "PretrainedFromHF from " + file_.string(); }
  std::vector<std::pair<std::string, std::string>> files() const override {
    std::vector<std::pair<std::string, std::string>> found = {
        {"tokenizer.json", std::filesystem::absolute(file_).string()}};
    for (const char* name : kCompanions) {
      const std::filesystem::path path = std::filesystem::absolute(file_).parent_path() / name;
      if (std::filesystem::exists(path)) found.emplace_back(name, path.string());
    }
    return found;
  }

 private:
  // An added token that was normalized is decoded from its normalized content.
  std::string decoded_piece(int32_t id) const {
    const auto added = parts_.added.by_id().find(id);
    return added != parts_.added.by_id().end() ? added->second.searched : id_to_piece(id);
  }

  std::filesystem::path file_;
  HfParts parts_;
  int64_t extra_ids_ = 0, vocab_size_ = 0;
  NamedIds named_;
  std::string chat_template_;
};

std::optional<JsonPart> optional_part(const JsonPart& file, const char* key) {
  return file.has(key) ? std::optional(file.part(key)) : std::nullopt;
}

HfParts read_parts(const JsonPart& file, int64_t extra_ids) {
  if (file.has("version") && file.value().at("version") != "1.0") {
    file.fail("'version' is " + file.value().at("version").dump() + ", expected \"1.0\"");
  }
  HfParts parts;
  parts.pre_tokenizer = make_pre_tokenizer(optional_part(file, "pre_tokenizer"));
  parts.model = read_hf_model(file.part("model"), parts.pre_tokenizer.bytes_last);
  if (const auto part = optional_part(file, "normalizer")) parts.normalizer = make_normalizer(*part);
  AddedTokens::Context context = {*parts.model.vocabulary, parts.model.num_ids, parts.normalizer.get(), {}};
  for (int64_t i = 0; i < extra_ids; ++i) context.more.push_back(extra_token(i));
  parts.added = AddedTokens(file, context);
  const bool bert_cuts = parts.pre_tokenizer.is_bert && parts.normalizer && parts.added.normalized().empty();
  if (bert_cuts && parts.model.is_word_piece) parts.bert = parts.normalizer->bert_words();
  if (const auto part = optional_part(file, "post_processor")) parts.post_processor = make_post_processor(*part);
  if (const auto part = optional_part(file, "decoder")) parts.decoder = make_decoder(*part);
  return parts;
}

// Of the key "eos_token": "</s>" or {"content": "</s>", ...}; empty if the file or the key is not there.
std::string content_of(const char* key, const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return "";
  const nlohmann::json config = read_json_file(path);
  const JsonPart part(config, path.string());
  if (!part.has(key)) return "";
  return config.at(key).is_string() ? part.text(key) : part.part(key).text("content");
}

// chat_template.jinja, or "chat_template" of tokenizer_config.json: a text, or a list of {"name", "template"}.
std::string find_chat_template(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "chat_template.jinja", config_file = folder / "tokenizer_config.json";
  if (std::filesystem::exists(file)) return read_file(file);
  if (!std::filesystem::exists(config_file)) return "";
  const nlohmann::json config = read_json_file(config_file);
  const JsonPart part(config, config_file.string());
  if (!part.has("chat_template")) return "";
  if (config.at("chat_template").is_string()) return part.text("chat_template");
  for (size_t i = 0; i < part.list("chat_template").size(); ++i) {
    const JsonPart named = part.element("chat_template", i);
    if (named.text("name") == "default") return named.text("template");
  }
  return "";
}

std::optional<int32_t> eos_id_of_generation(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  const nlohmann::json config = read_json_file(path);
  const JsonPart part(config, path.string());
  if (!part.has("eos_token_id")) return std::nullopt;
  const nlohmann::json& id = config.at("eos_token_id");
  const nlohmann::json& first = id.is_array() && !id.empty() ? id[0] : id;
  if (!first.is_number_integer()) part.fail("'eos_token_id' is " + id.dump() + ", expected an id");
  return first.get<int32_t>();
}

// `named`: whether a file says what the token is, known or not.
std::optional<int32_t> find_named(const char* key, const std::filesystem::path& folder, const Tokenizer& tokenizer,
                                  bool& named) {
  for (const char* name : {kCompanions[0], kCompanions[1]}) {
    const std::string content = content_of(key, folder / name);
    if (content.empty()) continue;
    const std::optional<int32_t> id = tokenizer.piece_to_id(content);
    if (!id) log_warning((folder / name).string(), ": ", key, " '", content, "' is not in the vocabulary");
    named = true;
    return id;
  }
  return std::nullopt;
}

NamedIds find_named_ids(const std::filesystem::path& folder, const Tokenizer& tokenizer) {
  bool has_eos = false, ignored = false;
  NamedIds ids;
  ids.bos = find_named("bos_token", folder, tokenizer, ignored);
  ids.eos = find_named("eos_token", folder, tokenizer, has_eos);
  ids.pad = find_named("pad_token", folder, tokenizer, ignored);
  ids.cls = find_named("cls_token", folder, tokenizer, ignored);
  ids.sep = find_named("sep_token", folder, tokenizer, ignored);
  ids.mask = find_named("mask_token", folder, tokenizer, ignored);
  if (!has_eos) ids.eos = eos_id_of_generation(folder / kCompanions[2]);
  return ids;
}

}  // namespace

std::unique_ptr<Tokenizer> load_hf_tokenizer(const std::filesystem::path& path, int64_t extra_ids) {
  const std::filesystem::path file = tokenizer_json_of(path);
  const nlohmann::json content = read_json_file(file);
  if (file.filename() != "tokenizer.json" && !content.contains("model")) {  // config.json and its like
    const std::filesystem::path own = file.parent_path() / "tokenizer.json";
    throw UserError(concat("'", file.string(), "' is not a tokenizer: it has no 'model'",
                           std::filesystem::exists(own) ? concat("; '", own.string(), "' is there") : ""),
                    ExitCode::kBadData);
  }
  auto tokenizer =
      std::make_unique<HfTokenizer>(file, read_parts(JsonPart(content, file.string()), extra_ids), extra_ids);
  const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
  tokenizer->set_named_ids(find_named_ids(folder, *tokenizer));
  tokenizer->set_chat_template(find_chat_template(folder));
  return tokenizer;
}

}  // namespace espalier::text
