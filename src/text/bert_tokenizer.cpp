#include "text/bert_tokenizer.h"

#include <unordered_map>

#include "base/error.h"
#include "base/format.h"
#include "text/internal/bert_words.h"
#include "text/internal/strings.h"
#include "text/internal/tokenizer_file.h"
#include "text/internal/tokenizer_json.h"
#include "text/internal/word_cache.h"
#include "text/internal/word_piece.h"

namespace espalier::text {

namespace {

using namespace internal;

// By id. Lines end with \n, \r\n or \r, as Python reads a text file.
std::vector<std::string> read_word_list(const std::filesystem::path& path) {
  const std::string content = internal::read_tokenizer_file(path);
  const size_t valid = valid_utf8_prefix(content);
  if (valid != content.size()) {
    throw UserError(concat("'", path.string(), "' at byte ", valid, ": expected UTF-8"), ExitCode::kBadData);
  }
  std::vector<std::string> pieces;
  std::unordered_map<std::string, size_t> lines;
  for (size_t begin = 0; begin < content.size();) {
    const size_t end = std::min(content.find_first_of("\r\n", begin), content.size());
    pieces.emplace_back(strip_as_python(std::string_view(content).substr(begin, end - begin)));
    const auto [known, is_new] = lines.try_emplace(pieces.back(), pieces.size());
    if (!is_new) {
      throw UserError(concat("'", path.string(), "' line ", pieces.size(), ": '", pieces.back(), "' is in line ",
                             known->second, " already; every line must be another piece"),
                      ExitCode::kBadData);
    }
    begin = end + (content.compare(end, 2, "\r\n") == 0 ? 2 : 1);
  }
  return pieces;
}

// What joins the pieces leaves blanks where English has none.
std::string clean_up(std::string text) {
  static constexpr std::pair<const char*, const char*> kReplacements[] = {
      {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
      {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kReplacements) text = replace_all(text, from, to);
  return text;
}

class BertEncoder final : public Encoder {
 public:
  BertEncoder(const BertWords& words, const WordPiece& model) : words_(words), model_(model) {}

  void encode(std::string_view text, std::vector<int32_t>& ids) override {
    words_.for_each_run(repair_utf8(text, repaired_, num_replaced_), [&](std::string_view run) {
      cache_.append(run, ids, [&](std::vector<int32_t>& made) {
        words_.for_each_word(run, buffer_, [&](std::string_view word) { model_.encode_word(word, scratch_, made); });
      });
    });
  }

 private:
  const BertWords& words_;
  const WordPiece& model_;
  WordCache cache_;
  WordScratch scratch_;
  std::string repaired_, buffer_;
};

class BertTokenizer final : public Tokenizer {
 public:
  BertTokenizer(std::filesystem::path file, bool lowercase, int64_t extra_ids)
      : file_(std::move(file)),
        lowercase_(lowercase),
        pieces_(read_word_list(file_)),
        words_({BertWords::Flavour::kMegatron, lowercase, lowercase}) {
    for (size_t id = 0; id < pieces_.size(); ++id) ids_[pieces_[id]] = static_cast<int32_t>(id);
    for (const char* needed : {"[CLS]", "[SEP]", "[PAD]", "[MASK]", "[UNK]"}) {
      if (ids_.count(needed) == 0) {
        throw UserError(concat("'", file_.string(), "' (", format_counted(static_cast<int64_t>(pieces_.size()), "line"),
                               ") has no line '", needed, "', which WordPiece for BERT needs"),
                        ExitCode::kBadData);
      }
    }
    // Pieces that are added later never result from a text.
    model_ = std::make_unique<WordPiece>(pieces_, WordPiece::Options{"##", ids_.at("[UNK]"), kMaxCharacters});
    num_lines_ = pieces_.size();
    add("[BOS]");
    add("[EOS]");
    for (int64_t i = 0; i < extra_ids; ++i) add("<extra_id_" + std::to_string(i) + ">");
  }

  std::unique_ptr<Encoder> new_encoder() const override { return std::make_unique<BertEncoder>(words_, *model_); }

  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const override {
    std::string text;
    bool first = true;
    for (const int32_t id : ids) {
      if (id < 0 || static_cast<size_t>(id) >= pieces_.size()) continue;
      const std::string& piece = pieces_[static_cast<size_t>(id)];
      if (skip_special_tokens && is_special(piece)) continue;
      if (!first) text += ' ';
      text += piece;
      first = false;
    }
    return clean_up(std::string(strip_as_python(replace_all(text, " ##", ""))));
  }

  int64_t vocab_size() const override { return static_cast<int64_t>(pieces_.size()); }
  std::optional<int32_t> eod() const override { return ids_.at("[EOS]"); }
  std::string id_to_piece(int32_t id) const override {
    return id >= 0 && static_cast<size_t>(id) < pieces_.size() ? pieces_[static_cast<size_t>(id)] : std::string();
  }
  std::optional<int32_t> piece_to_id(std::string_view piece) const override {
    const auto found = ids_.find(std::string(piece));
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  NamedIds named_ids() const override {
    return {.bos = ids_.at("[BOS]"),
            .eos = ids_.at("[EOS]"),
            .pad = ids_.at("[PAD]"),
            .cls = ids_.at("[CLS]"),
            .sep = ids_.at("[SEP]"),
            .mask = ids_.at("[MASK]")};
  }
  TokenizerJson tokenizer_json() const override {
    TokenizerJson made;
    std::vector<std::string> model_pieces(pieces_.begin(), pieces_.begin() + static_cast<int64_t>(num_lines_));
    std::optional<nlohmann::json> vocabulary = vocabulary_json(model_pieces, made.why_not);
    if (!vocabulary) return made;
    TokenizerJsonParts parts;
    parts.normalizer = {{"type", "BertNormalizer"},
                        {"clean_text", true},
                        {"handle_chinese_chars", true},
                        {"strip_accents", lowercase_},
                        {"lowercase", lowercase_}};
    parts.pre_tokenizer = {{"type", "BertPreTokenizer"}};
    parts.decoder = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
    parts.model = {{"type", "WordPiece"},
                   {"unk_token", "[UNK]"},
                   {"continuing_subword_prefix", "##"},
                   {"max_input_chars_per_word", kMaxCharacters},
                   {"vocab", *vocabulary}};
    for (const int32_t id : special_ids())
      parts.added_tokens.push_back(added_token_json(id, pieces_[static_cast<size_t>(id)], true));
    made.text = tokenizer_json_text(std::move(parts));
    made.notes.push_back(
        "tokenizers uses a different version of Unicode from Megatron's WordPiece, and no final sigma in lower case: "
        "rare characters and Greek words may get other ids");
    return made;
  }
  std::string description() const override {
    return concat("BertWordPiece", lowercase_ ? "LowerCase" : "Case", " from ", file_.string());
  }
  std::string kind() const override {
    return lowercase_ ? "WordPiece; lower case without accents" : "WordPiece; cased";
  }
  std::vector<int32_t> special_ids() const override {
    std::vector<int32_t> ids;
    for (size_t id = 0; id < pieces_.size(); ++id) {
      if (is_special(pieces_[id])) ids.push_back(static_cast<int32_t>(id));
    }
    return ids;
  }
  std::vector<std::pair<std::string, std::string>> files() const override {
    return {{"vocab.txt", std::filesystem::absolute(file_).string()}};
  }

 private:
  static constexpr int64_t kMaxCharacters = 200;

  void add(const std::string& piece) {
    if (ids_.try_emplace(piece, static_cast<int32_t>(pieces_.size())).second) pieces_.push_back(piece);
  }
  static bool is_special(const std::string& piece) {
    static constexpr const char* kSpecial[] = {"[CLS]", "[SEP]", "[PAD]", "[MASK]", "[BOS]", "[EOS]"};
    for (const char* special : kSpecial) {
      if (piece == special) return true;
    }
    return piece.compare(0, 10, "<extra_id_") == 0;
  }

  std::filesystem::path file_;
  bool lowercase_;
  size_t num_lines_ = 0;             // of vocab.txt, which come first in pieces_
  std::vector<std::string> pieces_;  // by id
  std::unordered_map<std::string, int32_t> ids_;
  BertWords words_;
  std::unique_ptr<WordPiece> model_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_bert_tokenizer(const std::filesystem::path& vocab_file, bool lowercase,
                                               int64_t extra_ids) {
  return std::make_unique<BertTokenizer>(vocab_file, lowercase, extra_ids);
}

}  // namespace espalier::text
