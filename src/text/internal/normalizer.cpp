#include "text/internal/normalizer.h"

#include <vector>

#include "base/error.h"
#include "text/internal/base64.h"
#include "text/internal/byte_level.h"
#include "text/internal/chars_map.h"
#include "text/internal/grapheme.h"
#include "text/internal/growth_limit.h"
#include "text/internal/normal_form.h"
#include "text/internal/pattern.h"
#include "text/unicode_table.h"
#include "text/utf8.h"

namespace espalier::text::internal {

namespace {

class FormNormalizer final : public Normalizer {
 public:
  explicit FormNormalizer(NormalForm form) : form_(form) {}
  void apply(Piece& piece) const override { normalize(form_, piece.text); }

 private:
  NormalForm form_;
};

// Code point by code point, without context (a final sigma is a sigma), as Rust's char::to_lowercase.
class Lowercase final : public Normalizer {
 public:
  void apply(Piece& piece) const override {
    std::string lower;
    lower.reserve(piece.text.size());
    for (const char32_t code : to_utf32(piece.text)) {
      append_utf8(code == 0x130 ? U'i' : lowercase_of(code), lower);
      if (code == 0x130) append_utf8(0x307, lower);
    }
    piece.text = std::move(lower);
  }
};

class StripAccents final : public Normalizer {
 public:
  void apply(Piece& piece) const override {
    std::string kept;
    kept.reserve(piece.text.size());
    bool first = true;
    for (const char32_t code : to_utf32(piece.text)) {
      const bool stripped = is_stripped_accent(code);
      if (first && stripped) piece.at_origin = false;
      if (!stripped) append_utf8(code, kept);
      first = false;
    }
    piece.text = std::move(kept);
  }
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(Piece& piece) const override {
    const char* begin = piece.text.data();
    const char* end = begin + piece.text.size();
    while (right_ && end > begin && is_white_space(decode_utf8(previous_utf8(end)).code)) end = previous_utf8(end);
    const char* kept = begin;
    while (left_ && kept < end && is_white_space(decode_utf8(kept).code)) kept += decode_utf8(kept).num_bytes;
    if (kept > begin) piece.at_origin = false;
    piece.text = std::string(kept, end);
  }

 private:
  bool left_, right_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(Piece& piece) const override {
    if (!piece.text.empty()) piece.text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  Replace(std::unique_ptr<Pattern> pattern, std::string content, std::string where)
      : pattern_(std::move(pattern)), content_(std::move(content)), where_(std::move(where)) {}
  void apply(Piece& piece) const override {
    const GrowthLimit limit(where_, piece.text.size());
    std::string replaced;
    replaced.reserve(piece.text.size());
    bool first = true;
    pattern_->for_each(piece.text, [&](const Stretch& stretch) {
      // What replaces a match counts as coming from the last character of it.
      if (first && stretch.is_match && stretch.end > 0) {
        const auto first_end = static_cast<size_t>(decode_utf8(piece.text.data()).num_bytes);
        if (content_.empty() || stretch.end > first_end) piece.at_origin = false;
      }
      first = false;
      if (stretch.is_match)
        replaced += content_;
      else
        replaced.append(piece.text, stretch.begin, stretch.end - stretch.begin);
      limit.check(replaced.size());
    });
    piece.text = std::move(replaced);
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  std::string content_, where_;
};

class BytesToChars final : public Normalizer {
 public:
  void apply(Piece& piece) const override { piece.text = piece_of_bytes(piece.text); }
};

// What a translation model drops, and what it takes for a blank.
class Nmt final : public Normalizer {
 public:
  void apply(Piece& piece) const override {
    std::string kept;
    kept.reserve(piece.text.size());
    bool first = true;
    for (const char32_t code : to_utf32(piece.text)) {
      if (first && is_dropped(code)) piece.at_origin = false;
      if (!is_dropped(code)) append_utf8(is_blank(code) ? U' ' : code, kept);
      first = false;
    }
    piece.text = std::move(kept);
  }

 private:
  static bool is_dropped(char32_t code) {
    return (code >= 0x1 && code <= 0x8) || code == 0xB || (code >= 0xE && code <= 0x1F) || code == 0x7F ||
           code == 0x8F || code == 0x9F;
  }
  static bool is_blank(char32_t code) {
    return code == 0x9 || code == 0xA || code == 0xC || code == 0xD || code == 0x1680 ||
           (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 || code == 0x2581 || code == 0xFEFF ||
           code == 0xFFFD;
  }
};

class Bert final : public Normalizer {
 public:
  Bert(BertWords::Options options, BertWords::Parts parts) : words_(options), parts_(parts) {}
  void apply(Piece& piece) const override {
    if (!piece.text.empty() && words_.drops(decode_utf8(piece.text.data()).code, parts_)) piece.at_origin = false;
    piece.text = words_.normalized(piece.text, parts_);
  }
  const BertWords* bert_words() const override {
    return parts_.clean_text && parts_.apart_ideographs ? &words_ : nullptr;
  }

 private:
  BertWords words_;
  BertWords::Parts parts_;
};

// SentencePiece's map of characters, read as tokenizers reads it: a grapheme below 6 bytes that begins with a key is
// replaced as a whole by what the shortest key becomes; of others every character is taken by itself.
class Precompiled final : public Normalizer {
 public:
  Precompiled(CharsMap map, std::string where) : map_(std::move(map)), where_(std::move(where)) {}
  void apply(Piece& piece) const override {
    const GrowthLimit limit(where_, piece.text.size());
    std::string replaced;
    replaced.reserve(piece.text.size());
    for (std::string_view left = piece.text; !left.empty();) {
      const size_t bytes = is_alone(left) ? 1 : grapheme_bytes(left);
      append_grapheme(left.substr(0, bytes), replaced);
      limit.check(replaced.size());
      left.remove_prefix(bytes);
    }
    piece.text = std::move(replaced);
  }

 private:
  // ASCII before ASCII, but for \r\n.
  static bool is_alone(std::string_view text) {
    const auto is_ascii = [](char byte) { return static_cast<uint8_t>(byte) < 0x80; };
    return is_ascii(text[0]) && (text.size() == 1 || (is_ascii(text[1]) && text[0] != '\r'));
  }
  void append_grapheme(std::string_view grapheme, std::string& replaced) const {
    constexpr size_t kMaxWholeBytes = 5;
    if (grapheme.size() <= kMaxWholeBytes) {
      const CharsMap::Match match = map_.shortest(grapheme);
      if (match.num_bytes > 0) {
        replaced += match.replacement;
        return;
      }
    }
    while (!grapheme.empty()) {
      const auto bytes = static_cast<size_t>(decode_utf8(grapheme.data()).num_bytes);
      const CharsMap::Match match = map_.shortest(grapheme.substr(0, bytes));
      replaced += match.num_bytes > 0 ? match.replacement : grapheme.substr(0, bytes);
      grapheme.remove_prefix(bytes);
    }
  }

  CharsMap map_;
  std::string where_;
};

std::unique_ptr<Normalizer> make_bert(const JsonPart& part) {
  const bool lowercase = part.flag("lowercase");
  const BertWords::Options options = {BertWords::Flavour::kTokenizers, lowercase,
                                      part.flag("strip_accents", lowercase)};
  return std::make_unique<Bert>(options, BertWords::Parts{part.flag("clean_text"), part.flag("handle_chinese_chars")});
}

std::unique_ptr<Normalizer> make_precompiled(const JsonPart& part) {
  const auto blob = decode_base64(part.text("precompiled_charsmap"));
  if (!blob) part.fail("'precompiled_charsmap' is not base64");
  const std::string where = part.where() + ".precompiled_charsmap";
  return std::make_unique<Precompiled>(CharsMap(*blob, where), where);
}

class SequenceNormalizer final : public Normalizer {
 public:
  SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> steps, std::string where)
      : steps_(std::move(steps)), where_(std::move(where)) {}
  void apply(Piece& piece) const override {
    const GrowthLimit limit(where_, piece.text.size());
    for (const auto& step : steps_) {
      step->apply(piece);
      limit.check(piece.text.size());
    }
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
  std::string where_;
};

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const JsonPart& part) {
  const std::string type = part.type();
  if (type == "NFC") return std::make_unique<FormNormalizer>(NormalForm::kNfc);
  if (type == "NFD") return std::make_unique<FormNormalizer>(NormalForm::kNfd);
  if (type == "NFKC") return std::make_unique<FormNormalizer>(NormalForm::kNfkc);
  if (type == "NFKD") return std::make_unique<FormNormalizer>(NormalForm::kNfkd);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Strip") return std::make_unique<Strip>(part.flag("strip_left"), part.flag("strip_right"));
  if (type == "Prepend") return std::make_unique<Prepend>(part.text("prepend"));
  if (type == "Replace") {
    return std::make_unique<Replace>(make_pattern(part.part("pattern")), part.text("content"), part.where());
  }
  if (type == "ByteLevel") return std::make_unique<BytesToChars>();
  if (type == "Nmt") return std::make_unique<Nmt>();
  if (type == "BertNormalizer") return make_bert(part);
  if (type == "Precompiled") return make_precompiled(part);
  if (type != "Sequence") {
    part.refuse_type(
        "NFC, NFD, NFKC, NFKD, Nmt, Lowercase, StripAccents, Strip, Prepend, Replace, ByteLevel, BertNormalizer, "
        "Precompiled, Sequence");
  }
  std::vector<std::unique_ptr<Normalizer>> steps;
  for (size_t i = 0; i < part.list("normalizers").size(); ++i) {
    steps.push_back(make_normalizer(part.element("normalizers", i)));
  }
  return std::make_unique<SequenceNormalizer>(std::move(steps), part.where());
}

}  // namespace espalier::text::internal
