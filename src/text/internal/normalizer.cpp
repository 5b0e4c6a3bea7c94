#include "text/internal/normalizer.h"

#include <vector>

#include "base/error.h"
#include "text/internal/byte_level.h"
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
  Replace(std::unique_ptr<Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(Piece& piece) const override {
    std::vector<Stretch> stretches;
    pattern_->find(piece.text, stretches);
    std::string replaced;
    replaced.reserve(piece.text.size());
    for (const Stretch& stretch : stretches) {
      if (stretch.is_match)
        replaced += content_;
      else
        replaced.append(piece.text, stretch.begin, stretch.end - stretch.begin);
    }
    // What replaces a match counts as coming from the last character of it.
    if (!stretches.empty() && stretches[0].is_match && stretches[0].end > 0) {
      const auto first_end = static_cast<size_t>(decode_utf8(piece.text.data()).num_bytes);
      if (content_.empty() || stretches[0].end > first_end) piece.at_origin = false;
    }
    piece.text = std::move(replaced);
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  std::string content_;
};

class BytesToChars final : public Normalizer {
 public:
  void apply(Piece& piece) const override { piece.text = piece_of_bytes(piece.text); }
};

class SequenceNormalizer final : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}
  void apply(Piece& piece) const override {
    for (const auto& step : steps_) step->apply(piece);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
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
  if (type == "Replace") return std::make_unique<Replace>(make_pattern(part.part("pattern")), part.text("content"));
  if (type == "ByteLevel") return std::make_unique<BytesToChars>();
  if (type != "Sequence") {
    part.refuse_type("NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace, ByteLevel, Sequence");
  }
  std::vector<std::unique_ptr<Normalizer>> steps;
  for (size_t i = 0; i < part.list("normalizers").size(); ++i) {
    steps.push_back(make_normalizer(part.element("normalizers", i)));
  }
  return std::make_unique<SequenceNormalizer>(std::move(steps));
}

}  // namespace espalier::text::internal
