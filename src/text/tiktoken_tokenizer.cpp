#include "text/tiktoken_tokenizer.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/format.h"
#include "text/internal/byte_bpe.h"
#include "text/internal/byte_level.h"
#include "text/internal/pattern.h"
#include "text/internal/tiktoken_file.h"
#include "text/internal/tokenizer_json.h"
#include "text/utf8.h"

namespace espalier::text {

namespace {

using namespace internal;

// Two neighbours are joined if they make a token, the lowest rank first.
ByteBpeSource make_source(const std::vector<std::string>& tokens, int32_t first_id) {
  ByteBpeSource source;
  PieceTable table(tokens.size());
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    if (!tokens[rank].empty()) table.add(tokens[rank], static_cast<int32_t>(rank));
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char letter = static_cast<char>(byte);
    source.byte_symbols[static_cast<size_t>(byte)] = table.find({&letter, 1});
  }
  source.merges = BpeMerges(4 * tokens.size());
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    const std::string_view token = tokens[rank];
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const int32_t left = table.find(token.substr(0, cut));
      if (left < 0) continue;
      const int32_t right = table.find(token.substr(cut));
      if (right < 0) continue;
      source.merges.add_ranked(left, right, static_cast<int32_t>(rank), static_cast<uint32_t>(rank));
    }
  }
  source.symbol_bytes = tokens;
  source.whole_words_first = true;
  for (size_t rank = 0; first_id > 0 && rank < tokens.size(); ++rank) {
    source.id_of_symbol.push_back(first_id + static_cast<int32_t>(rank));
  }
  return source;
}

struct TiktokenParts {
  std::optional<PieceRule> rule;
  std::unique_ptr<Pattern> pattern;  // where there is no rule
  std::unique_ptr<ByteBpe> bpe;
};

class TiktokenEncoder final : public Encoder {
 public:
  explicit TiktokenEncoder(const TiktokenParts& parts) : parts_(parts), bytes_(*parts.bpe) {}
  void encode(std::string_view text, std::vector<int32_t>& ids) override {
    const std::string_view valid = repair_utf8(text, repaired_, num_replaced_);
    if (parts_.rule) return bytes_.encode(*parts_.rule, valid, ids);
    parts_.pattern->for_each(valid, [&](const Stretch& stretch) {  // what no match covers has no ids
      if (stretch.is_match) bytes_.encode_piece(valid.substr(stretch.begin, stretch.end - stretch.begin), ids);
    });
  }

 private:
  const TiktokenParts& parts_;
  ByteBpeEncoder bytes_;
  std::string repaired_;
};

class TiktokenTokenizer final : public Tokenizer {
 public:
  explicit TiktokenTokenizer(const TiktokenOptions& options) : file_(options.file) {
    TiktokenRanks ranks = read_tiktoken_file(file_);
    TiktokenEncoding encoding = tiktoken_encoding(pattern_name(options, ranks), file_.string());
    int32_t first_id = 0;
    if (ranks.is_json) {
      first_id = add_leading_special_tokens(options, ranks);
    } else {
      auto next = static_cast<int32_t>(ranks.tokens.size());
      for (const std::string& token : options.special_tokens) encoding.special_tokens.emplace_back(token, next++);
      for (const auto& [token, id] : encoding.special_tokens) add_special(token, id, ranks);
    }
    parts_.rule = rule_of_pattern(encoding.expression);
    if (!parts_.rule) parts_.pattern = regex_pattern(encoding.expression, "--tiktoken-pattern");
    parts_.bpe = std::make_unique<ByteBpe>(make_source(ranks.tokens, first_id));
    pieces_.resize(std::max(pieces_.size(), static_cast<size_t>(first_id) + ranks.tokens.size()));
    for (size_t rank = 0; rank < ranks.tokens.size(); ++rank) {
      const size_t id = static_cast<size_t>(first_id) + rank;
      if (pieces_[id].empty()) pieces_[id] = std::move(ranks.tokens[rank]);
    }
    for (size_t id = 0; id < pieces_.size(); ++id) ids_.emplace(pieces_[id], static_cast<int32_t>(id));
    expression_ = parts_.rule ? std::string(pattern_of_rule(*parts_.rule)) : encoding.expression;
    first_id_ = static_cast<size_t>(first_id);
    num_ranks_ = ranks.tokens.size();
  }

  std::unique_ptr<Encoder> new_encoder() const override { return std::make_unique<TiktokenEncoder>(parts_); }

  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const override {
    std::string bytes, repaired;
    for (const int32_t id : ids) {
      if (id < 0 || static_cast<size_t>(id) >= pieces_.size()) continue;
      if (!skip_special_tokens || special_.count(id) == 0) bytes += pieces_[static_cast<size_t>(id)];
    }
    int64_t num_replaced = 0;
    return std::string(repair_utf8(bytes, repaired, num_replaced));
  }

  int64_t vocab_size() const override { return static_cast<int64_t>(pieces_.size()); }
  std::optional<int32_t> eod() const override { return eod_; }
  std::string id_to_piece(int32_t id) const override {
    if (id < 0 || static_cast<size_t>(id) >= pieces_.size()) return "";
    const std::string& bytes = pieces_[static_cast<size_t>(id)];
    return special_.count(id) > 0 ? bytes : piece_of_bytes(bytes);
  }
  std::optional<int32_t> piece_to_id(std::string_view piece) const override {
    for (const std::string& bytes : {std::string(piece), bytes_of_piece(piece).value_or("")}) {
      const auto found = ids_.find(bytes);
      if (found != ids_.end() && !bytes.empty()) return found->second;
    }
    return std::nullopt;
  }
  NamedIds named_ids() const override {
    const auto special = [&](std::initializer_list<const char*> names) -> std::optional<int32_t> {
      for (const char* name : names) {
        const std::optional<int32_t> id = piece_to_id(name);
        if (id && special_.count(*id) > 0) return id;
      }
      return std::nullopt;
    };
    return {.bos = special({"<|begin_of_text|>", "<s>"}), .eos = eod_, .pad = special({"<pad>"})};
  }
  TokenizerJson tokenizer_json() const override;
  std::string description() const override { return "TikTokenizer from " + file_.string(); }
  std::string kind() const override {
    return "byte-level BPE of tiktoken; pieces of " +
           (parts_.rule ? name_of_rule(*parts_.rule) : std::string("a regular expression"));
  }
  std::vector<int32_t> special_ids() const override {
    std::vector<int32_t> ids(special_.begin(), special_.end());
    std::sort(ids.begin(), ids.end());
    return ids;
  }
  std::vector<std::pair<std::string, std::string>> files() const override {
    return {{"vocab.tiktoken", std::filesystem::absolute(file_).string()}};
  }

 private:
  static std::string pattern_name(const TiktokenOptions& options, const TiktokenRanks& ranks) {
    if (!options.pattern.empty()) return options.pattern;
    const std::string stem = options.file.stem();
    if (is_tiktoken_encoding(stem)) return stem;
    return !ranks.is_json && ranks.tokens.size() == 128000 ? "llama3" : "";
  }

  void add_special(const std::string& token, int32_t id, const TiktokenRanks& ranks) {
    const auto index = static_cast<size_t>(id);
    const bool taken = (index < ranks.tokens.size() && !ranks.tokens[index].empty()) || special_.count(id) > 0;
    if (taken) {
      throw UserError(concat("'", file_.string(), "': the special token '", token, "' should have the id ", id,
                             ", which is another token's; is it the vocabulary of this --tiktoken-pattern?"),
                      ExitCode::kBadData);
    }
    if (index >= pieces_.size()) pieces_.resize(index + 1);
    pieces_[index] = token;
    special_.insert(id);
    for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>"}) {
      if (token == name) eod_ = id;
    }
  }

  // NVIDIA's layout; returns the id of rank 0.
  int32_t add_leading_special_tokens(const TiktokenOptions& options, TiktokenRanks& ranks) {
    constexpr int64_t kUsualSize = 1 << 17;
    std::vector<std::string> tokens = options.special_tokens;
    if (tokens.empty()) tokens = {"<unk>", "<s>", "</s>"};
    const int64_t wanted = options.num_special_tokens, size = options.vocab_size.value_or(kUsualSize);
    const auto num_given = static_cast<int64_t>(tokens.size());
    Problems problems;
    for (const char* needed : {"<unk>", "<s>", "</s>"}) {
      if (std::count(tokens.begin(), tokens.end(), needed) != 1)
        problems.add("--tiktoken-special-tokens: '", needed, "' must be among them, once");
    }
    if (num_given > wanted)
      problems.add("--tiktoken-num-special-tokens ", wanted, " is below the ", num_given, " special tokens given");
    if (size - wanted < 256 || size - wanted > static_cast<int64_t>(ranks.tokens.size())) {
      problems.add("'", file_.string(), "' holds ", format_count(static_cast<int64_t>(ranks.tokens.size())),
                   " tokens; --vocab-size ", size, " with ", wanted, " special tokens needs ", size - wanted,
                   " of them, at least 256");
    }
    problems.raise();
    for (int64_t i = num_given; i < wanted; ++i) tokens.push_back(concat("<SPECIAL_", i, ">"));
    ranks.tokens.resize(static_cast<size_t>(size - wanted));
    for (size_t id = 0; id < tokens.size(); ++id) add_special(tokens[id], static_cast<int32_t>(id), {});
    return static_cast<int32_t>(wanted);
  }

  std::filesystem::path file_;
  TiktokenParts parts_;
  std::vector<std::string> pieces_;  // bytes, by id
  std::unordered_map<std::string, int32_t> ids_;
  std::unordered_set<int32_t> special_;
  std::optional<int32_t> eod_;
  std::string expression_;
  size_t first_id_ = 0, num_ranks_ = 0;
};

TokenizerJson TiktokenTokenizer::tokenizer_json() const {
  using nlohmann::json;
  TokenizerJson made;
  const auto token = [&](size_t rank) -> std::string_view { return pieces_[first_id_ + rank]; };
  const auto is_rank = [&](int32_t id) {
    const auto index = static_cast<size_t>(id);
    return index >= first_id_ && index < first_id_ + num_ranks_ && special_.count(id) == 0;
  };
  std::vector<std::string> names;
  for (size_t id = 0; id < pieces_.size(); ++id) names.push_back(id_to_piece(static_cast<int32_t>(id)));
  std::optional<json> vocabulary = vocabulary_json(names, made.why_not);
  if (!vocabulary) return made;
  // Any two tokens that make a third one are joined, the one of the lowest rank first.
  json merges = json::array();
  for (size_t rank = 0; rank < num_ranks_; ++rank) {
    const std::string_view whole = token(rank);
    if (!is_rank(static_cast<int32_t>(first_id_ + rank))) continue;
    for (size_t cut = 1; cut < whole.size(); ++cut) {
      const auto left = ids_.find(std::string(whole.substr(0, cut)));
      const auto right = ids_.find(std::string(whole.substr(cut)));
      if (left == ids_.end() || right == ids_.end() || !is_rank(left->second) || !is_rank(right->second)) continue;
      merges.push_back({names[static_cast<size_t>(left->second)], names[static_cast<size_t>(right->second)]});
    }
  }
  TokenizerJsonParts parts;
  // What no match covers has no ids.
  const json cut = {
      {"type", "Split"}, {"pattern", {{"Regex", expression_}}}, {"behavior", "Removed"}, {"invert", true}};
  const json cut_everywhere = {
      {"type", "Split"}, {"pattern", {{"Regex", expression_}}}, {"behavior", "Isolated"}, {"invert", false}};
  parts.pre_tokenizer =
      sequence_json("pretokenizers", {parts_.rule ? cut_everywhere : cut, byte_level_json(/*use_regex=*/false)});
  parts.decoder = byte_level_json(/*use_regex=*/false);
  parts.model = {{"type", "BPE"},          {"dropout", nullptr},    {"unk_token", nullptr}, {"fuse_unk", false},
                 {"byte_fallback", false}, {"ignore_merges", true}, {"vocab", *vocabulary}, {"merges", merges}};
  for (const int32_t id : special_ids())
    parts.added_tokens.push_back(added_token_json(id, pieces_[static_cast<size_t>(id)], true));
  made.text = tokenizer_json_text(std::move(parts));
  return made;
}

}  // namespace

std::unique_ptr<Tokenizer> load_tiktoken_tokenizer(const TiktokenOptions& options) {
  return std::make_unique<TiktokenTokenizer>(options);
}

}  // namespace espalier::text
