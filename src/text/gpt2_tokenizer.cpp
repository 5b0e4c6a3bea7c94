#include "text/gpt2_tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/format.h"
#include "text/internal/byte_bpe.h"
#include "text/internal/byte_level.h"
#include "text/internal/json_file.h"
#include "text/internal/tokenizer_file.h"
#include "text/internal/tokenizer_json.h"
#include "text/utf8.h"

namespace espalier::text {

namespace {

using internal::ByteBpe;
using internal::ByteBpeEncoder;
using internal::ByteBpeSource;

constexpr const char* kEndOfText = "<|endoftext|>";
constexpr int32_t kUnknownPieceId = 0;

class Gpt2Encoder final : public Encoder {
 public:
  explicit Gpt2Encoder(const ByteBpe& bpe) : bpe_(bpe) {}
  void encode(std::string_view text, std::vector<int32_t>& ids) override {
    bpe_.encode(PieceRule::kGpt2, repair_utf8(text, repaired_, num_replaced_), ids);
  }

 private:
  ByteBpeEncoder bpe_;
  std::string repaired_;
};

class Gpt2Tokenizer final : public Tokenizer {
 public:
  Gpt2Tokenizer(std::filesystem::path vocab_file, std::filesystem::path merge_file, std::vector<std::string> pieces,
                ByteBpeSource source)
      : vocab_file_(std::move(vocab_file)),
        merge_file_(std::move(merge_file)),
        pieces_(std::move(pieces)),
        bpe_(std::move(source)) {
    for (size_t id = 0; id < pieces_.size(); ++id) {
      if (!pieces_[id].empty()) ids_.emplace(pieces_[id], static_cast<int32_t>(id));
    }
  }

  std::unique_ptr<Encoder> new_encoder() const override { return std::make_unique<Gpt2Encoder>(bpe_); }

  // Ids outside the vocabulary (the padding of a model's embedding) give nothing.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const override {
    const std::optional<int32_t> end = eod();
    std::string bytes;
    for (const int32_t id : ids) {
      if (skip_special_tokens && end && id == *end) continue;
      const std::string piece = id_to_piece(id);
      bytes += internal::bytes_of_piece(piece).value_or(piece);
    }
    std::string repaired;
    int64_t num_replaced = 0;
    return std::string(repair_utf8(bytes, repaired, num_replaced));
  }

  int64_t vocab_size() const override { return static_cast<int64_t>(pieces_.size()); }
  std::optional<int32_t> eod() const override { return piece_to_id(kEndOfText); }
  std::string id_to_piece(int32_t id) const override {
    return id >= 0 && id < vocab_size() ? pieces_[static_cast<size_t>(id)] : std::string();
  }
  std::optional<int32_t> piece_to_id(std::string_view piece) const override {
    const auto found = ids_.find(piece);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  // transformers gives GPT-2's end of a document as the beginning, too.
  NamedIds named_ids() const override { return {.bos = eod(), .eos = eod(), .pad = std::nullopt}; }
  TokenizerJson tokenizer_json() const override;
  std::string kind() const override { return "byte-level BPE; pieces of GPT-2's pattern"; }
  std::vector<int32_t> special_ids() const override {
    const std::optional<int32_t> end = eod();
    return end ? std::vector<int32_t>{*end} : std::vector<int32_t>{};
  }
  std::string description() const override { return "GPT2BPETokenizer from " + vocab_file_.string(); }
  std::vector<std::pair<std::string, std::string>> files() const override {
    return {{"vocab.json", std::filesystem::absolute(vocab_file_).string()},
            {"merges.txt", std::filesystem::absolute(merge_file_).string()}};
  }

 private:
  std::filesystem::path vocab_file_, merge_file_;
  std::vector<std::string> pieces_;                    // by id
  std::unordered_map<std::string_view, int32_t> ids_;  // into pieces_
  ByteBpe bpe_;
};

std::vector<std::string> read_vocabulary(const std::filesystem::path& path) {
  const nlohmann::json vocabulary = internal::read_json_file(path);
  if (!vocabulary.is_object() || vocabulary.empty()) {
    throw UserError(concat("'", path.string(), "' is not a vocabulary: expected an object of pieces and ids"),
                    ExitCode::kBadData);
  }
  std::vector<std::string> pieces(vocabulary.size());
  for (const auto& [piece, id] : vocabulary.items()) {
    const bool whole = id.is_number_integer() || id.is_number_unsigned();
    const int64_t value = whole ? id.get<int64_t>() : -1;
    if (value < 0 || value >= static_cast<int64_t>(pieces.size()) || !pieces[static_cast<size_t>(value)].empty()) {
      throw UserError(
          concat("'", path.string(), "': the id of '", piece, "' is ", id.dump(), "; the ",
                 format_count(static_cast<int64_t>(pieces.size())), " pieces must have the ids from 0 on, each once"),
          ExitCode::kBadData);
    }
    pieces[static_cast<size_t>(value)] = piece;
  }
  return pieces;
}

// Symbols by piece; a piece that the vocabulary lacks gets a number beyond its ids when it is first needed.
class Symbols {
 public:
  explicit Symbols(const std::vector<std::string>& pieces) {
    symbols_.reserve(2 * pieces.size());
    for (const std::string& piece : pieces) {
      add(piece, static_cast<int32_t>(bytes_.size()));
    }
  }
  int32_t at(const std::string& piece) {
    const auto found = symbols_.find(piece);
    return found == symbols_.end() ? add(piece, kUnknownPieceId) : found->second;
  }
  std::vector<std::string> take_bytes() { return std::move(bytes_); }
  std::vector<int32_t> take_ids() { return std::move(ids_); }

 private:
  int32_t add(const std::string& piece, int32_t id) {
    const auto symbol = static_cast<int32_t>(bytes_.size());
    bytes_.push_back(internal::bytes_of_piece(piece).value_or(""));
    ids_.push_back(id);
    symbols_.emplace(piece, symbol);
    return symbol;
  }

  std::unordered_map<std::string, int32_t> symbols_;
  std::vector<std::string> bytes_;
  std::vector<int32_t> ids_;
};

// The pairs of pieces that are joined, in their order.
std::vector<std::pair<std::string, std::string>> read_merges(const std::filesystem::path& path) {
  std::vector<std::pair<std::string, std::string>> merges;
  const std::vector<std::string> lines = split(internal::read_tokenizer_file(path), '\n');
  // The first line is a comment; what follows the last line feed is not a line.
  for (size_t number = 1; number + 1 < lines.size(); ++number) {
    const std::vector<std::string> words = split_blanks(lines[number]);
    if (words.empty()) continue;
    if (words.size() != 2) {
      throw UserError(concat("'", path.string(), "' line ", number + 1, ": expected two pieces, found ", words.size(),
                             " ('", lines[number], "')"),
                      ExitCode::kBadData);
    }
    merges.emplace_back(words[0], words[1]);
  }
  return merges;
}

TokenizerJson Gpt2Tokenizer::tokenizer_json() const {
  using nlohmann::json;
  TokenizerJson made;
  json merges = json::array();
  for (const auto& [left, right] : read_merges(merge_file_)) {
    for (const std::string& piece : {left, right, left + right}) {
      if (ids_.count(piece) > 0) continue;
      made.why_not = concat(merge_file_.filename().string(), " joins '", left, "' and '", right, "', and ",
                            vocab_file_.filename().string(), " has no '", piece, "'");
      return made;
    }
    merges.push_back({left, right});
  }
  // Bytes without a piece have id 0 here.
  json unknown;
  for (int byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    if (!piece_to_id(internal::piece_of_bytes({&character, 1}))) unknown = pieces_[kUnknownPieceId];
  }
  std::optional<json> vocabulary = internal::vocabulary_json(pieces_, made.why_not);
  if (!vocabulary) return made;
  internal::TokenizerJsonParts parts;
  parts.pre_tokenizer = parts.decoder = internal::byte_level_json(/*use_regex=*/true);
  parts.model = {{"type", "BPE"},          {"dropout", nullptr},     {"unk_token", unknown}, {"fuse_unk", false},
                 {"byte_fallback", false}, {"ignore_merges", false}, {"vocab", *vocabulary}, {"merges", merges}};
  if (const auto end = eod()) parts.added_tokens.push_back(internal::added_token_json(*end, kEndOfText, true));
  made.text = internal::tokenizer_json_text(std::move(parts));
  return made;
}

}  // namespace

std::unique_ptr<Tokenizer> load_gpt2_tokenizer(const std::filesystem::path& vocab_file,
                                               const std::filesystem::path& merge_file) {
  if (internal::read_tokenizer_file(vocab_file).starts_with("#version") &&
      internal::read_tokenizer_file(merge_file).starts_with("{"))
    throw UserError(concat("'", vocab_file.string(), "' holds merges and '", merge_file.string(),
                           "' a vocabulary: exchange --vocab-file and --merge-file"),
                    ExitCode::kUsage);
  std::vector<std::string> pieces = read_vocabulary(vocab_file);
  Symbols symbols(pieces);
  ByteBpeSource source;
  source.merges = internal::BpeMerges(pieces.size());
  for (int byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    source.byte_symbols[static_cast<size_t>(byte)] = symbols.at(internal::piece_of_bytes({&character, 1}));
  }
  for (const auto& [left, right] : read_merges(merge_file))
    source.merges.add(symbols.at(left), symbols.at(right), symbols.at(left + right));
  source.symbol_bytes = symbols.take_bytes();
  source.id_of_symbol = symbols.take_ids();
  return std::make_unique<Gpt2Tokenizer>(vocab_file, merge_file, std::move(pieces), std::move(source));
}

}  // namespace espalier::text
