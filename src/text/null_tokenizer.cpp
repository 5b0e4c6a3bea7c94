#include "text/null_tokenizer.h"

#include <charconv>

#include "base/error.h"
#include "base/format.h"

namespace espalier::text {

namespace {

// The id that `word` writes, or -1.
int64_t parse_id(std::string_view word, int64_t largest) {
  int64_t id = -1;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
  return error == std::errc() && end == word.data() + word.size() && id >= 0 && id <= largest ? id : -1;
}

class NullEncoder final : public Encoder {
 public:
  explicit NullEncoder(int64_t size) : size_(size) {}
  void encode(std::string_view text, std::vector<int32_t>& ids) override {
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(' ', begin), text.size());
      const std::string_view word = text.substr(begin, end - begin);
      const int64_t id = parse_id(word, size_);
      if (id < 0) {
        throw UserError(concat("NullTokenizer: expected ids from 0 to ", size_, " with one space between them, found '",
                               word.substr(0, 40), "' at byte ", begin, " of a text of ", text.size(),
                               ". It knows no words: those need the tokenizer of the model"),
                        ExitCode::kBadData);
      }
      ids.push_back(static_cast<int32_t>(id));
      begin = end + 1;
    }
  }

 private:
  int64_t size_;
};

class NullTokenizer final : public Tokenizer {
 public:
  explicit NullTokenizer(int64_t size) : size_(size) {}
  std::unique_ptr<Encoder> new_encoder() const override { return std::make_unique<NullEncoder>(size_); }
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (skip_special_tokens && id == size_) continue;
      text += (text.empty() ? "" : " ") + std::to_string(id);
    }
    return text;
  }
  int64_t vocab_size() const override { return size_ + 1; }
  std::optional<int32_t> eod() const override { return static_cast<int32_t>(size_); }
  std::string id_to_piece(int32_t id) const override { return id >= 0 && id <= size_ ? std::to_string(id) : ""; }
  std::optional<int32_t> piece_to_id(std::string_view piece) const override {
    const int64_t id = parse_id(piece, size_);
    return id < 0 ? std::nullopt : std::optional(static_cast<int32_t>(id));
  }
  TokenizerJson tokenizer_json() const override {
    return {.text = "", .why_not = "the ids of NullTokenizer are not made from text", .notes = {}};
  }
  std::string description() const override { return "NullTokenizer of " + format_count(size_) + " ids"; }
  std::string kind() const override { return "ids as text"; }
  bool encodes_any_text() const override { return false; }
  std::vector<int32_t> special_ids() const override { return {static_cast<int32_t>(size_)}; }
  std::vector<std::pair<std::string, std::string>> files() const override { return {}; }

 private:
  int64_t size_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_null_tokenizer(int64_t size) {
  constexpr int64_t kMaxSize = int64_t{1} << 28;
  if (size < 1 || size > kMaxSize) {
    throw UserError(concat("--vocab-size ", size, " for NullTokenizer: use 1 to ", kMaxSize), ExitCode::kUsage);
  }
  return std::make_unique<NullTokenizer>(size);
}

}  // namespace espalier::text
