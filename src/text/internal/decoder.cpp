#include "text/internal/decoder.h"

#include <cstdint>
#include <utility>

#include "base/error.h"
#include "text/internal/byte_level.h"
#include "text/internal/growth_limit.h"
#include "text/internal/pattern.h"
#include "text/internal/strings.h"
#include "text/utf8.h"

namespace espalier::text::internal {

namespace {

using Strings = std::vector<std::string>;

size_t num_bytes_of(const Strings& pieces) {
  size_t num_bytes = 0;
  for (const std::string& piece : pieces) num_bytes += piece.size();
  return num_bytes;
}

// What English tokenizers leave between words and punctuation.
std::string clean_up(std::string text) {
  static const std::pair<const char*, const char*> kReplacements[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kReplacements) text = replace_all(text, from, to);
  return text;
}

class ByteLevelDecoder final : public Decoder {
 public:
  void apply(Strings& pieces) const override {
    std::string bytes, repaired;
    for (const std::string& piece : pieces) bytes += bytes_of_piece(piece).value_or(piece);
    int64_t num_replaced = 0;
    pieces = {std::string(repair_utf8(bytes, repaired, num_replaced))};
  }
};

// <0xE2> is a byte. A run of them that is not UTF-8 gives one U+FFFD for each.
class ByteFallbackDecoder final : public Decoder {
 public:
  void apply(Strings& pieces) const override {
    Strings decoded;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (valid_utf8_prefix(bytes) == bytes.size())
        decoded.push_back(bytes);
      else
        decoded.insert(decoded.end(), bytes.size(), "\uFFFD");
      bytes.clear();
    };
    for (std::string& piece : pieces) {
      const int byte = byte_of(piece);
      if (byte >= 0) {
        bytes += static_cast<char>(byte);
        continue;
      }
      flush();
      decoded.push_back(std::move(piece));
    }
    flush();
    pieces = std::move(decoded);
  }

 private:
  // Rust's u8::from_str_radix takes a sign as well: <0x+F>.
  static int byte_of(const std::string& piece) {
    if (piece.size() != 6 || piece.compare(0, 3, "<0x") != 0 || piece[5] != '>') return -1;
    const int high = piece[3] == '+' ? 0 : digit(piece[3]), low = digit(piece[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
  }
  static int digit(char letter) {
    if (letter >= '0' && letter <= '9') return letter - '0';
    const char lower = static_cast<char>(letter | 32);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  }
};

class FuseDecoder final : public Decoder {
 public:
  void apply(Strings& pieces) const override {
    std::string all;
    for (const std::string& piece : pieces) all += piece;
    pieces = {all};
  }
};

// Up to that many of a character at the ends of every piece.
class StripDecoder final : public Decoder {
 public:
  StripDecoder(char32_t content, int64_t start, int64_t stop) : content_(content), start_(start), stop_(stop) {}
  void apply(Strings& pieces) const override {
    for (std::string& piece : pieces) {
      const std::u32string codes = to_utf32(piece);
      size_t begin = 0, end = codes.size();
      while (begin < codes.size() && static_cast<int64_t>(begin) < start_ && codes[begin] == content_) ++begin;
      while (end > begin && static_cast<int64_t>(codes.size() - end) < stop_ && codes[end - 1] == content_) --end;
      piece.clear();
      for (size_t i = begin; i < end; ++i) append_utf8(codes[i], piece);
    }
  }

 private:
  char32_t content_;
  int64_t start_, stop_;
};

class ReplaceDecoder final : public Decoder {
 public:
  ReplaceDecoder(std::unique_ptr<Pattern> pattern, std::string content, std::string where)
      : pattern_(std::move(pattern)), content_(std::move(content)), where_(std::move(where)) {}
  void apply(Strings& pieces) const override {
    const GrowthLimit limit(where_, num_bytes_of(pieces));
    size_t num_bytes = 0;  // of all pieces so far
    for (std::string& piece : pieces) {
      std::string replaced;
      pattern_->for_each(piece, [&](const Stretch& stretch) {
        if (stretch.is_match)
          replaced += content_;
        else
          replaced.append(piece, stretch.begin, stretch.end - stretch.begin);
        limit.check(num_bytes + replaced.size());
      });
      num_bytes += replaced.size();
      piece = std::move(replaced);
    }
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  std::string content_, where_;
};

// The replacement is a blank; in the first piece it is nothing where one was prepended.
class MetaspaceDecoder final : public Decoder {
 public:
  MetaspaceDecoder(char32_t replacement, bool prepended) : prepended_(prepended) {
    append_utf8(replacement, replacement_);
  }
  void apply(Strings& pieces) const override {
    for (size_t i = 0; i < pieces.size(); ++i) {
      pieces[i] = replace_all(pieces[i], replacement_, i == 0 && prepended_ ? "" : " ");
    }
  }

 private:
  std::string replacement_;
  bool prepended_;
};

class WordPieceDecoder final : public Decoder {
 public:
  WordPieceDecoder(std::string prefix, bool cleans_up) : prefix_(std::move(prefix)), cleans_up_(cleans_up) {}
  void apply(Strings& pieces) const override {
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (i > 0) {
        const bool continues = pieces[i].compare(0, prefix_.size(), prefix_) == 0;
        pieces[i] = continues ? pieces[i].substr(prefix_.size()) : " " + pieces[i];
      }
      if (cleans_up_) pieces[i] = clean_up(pieces[i]);
    }
  }

 private:
  std::string prefix_;
  bool cleans_up_;
};

class SuffixDecoder final : public Decoder {
 public:
  explicit SuffixDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(Strings& pieces) const override {
    for (size_t i = 0; i < pieces.size(); ++i) {
      pieces[i] = replace_all(pieces[i], suffix_, i + 1 == pieces.size() ? "" : " ");
    }
  }

 private:
  std::string suffix_;
};

class CtcDecoder final : public Decoder {
 public:
  CtcDecoder(std::string pad, std::string delimiter, bool cleans_up)
      : pad_(std::move(pad)), delimiter_(std::move(delimiter)), cleans_up_(cleans_up) {}
  void apply(Strings& pieces) const override {
    Strings decoded;
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (i > 0 && pieces[i] == pieces[i - 1]) continue;
      std::string text = replace_all(pieces[i], pad_, "");
      if (cleans_up_) text = replace_all(clean_up(text), delimiter_, " ");
      if (!text.empty()) decoded.push_back(std::move(text));
    }
    pieces = std::move(decoded);
  }

 private:
  std::string pad_, delimiter_;
  bool cleans_up_;
};

class SequenceDecoder final : public Decoder {
 public:
  SequenceDecoder(std::vector<std::unique_ptr<Decoder>> steps, std::string where)
      : steps_(std::move(steps)), where_(std::move(where)) {}
  void apply(Strings& pieces) const override {
    const GrowthLimit limit(where_, num_bytes_of(pieces));
    for (const auto& step : steps_) {
      step->apply(pieces);
      limit.check(num_bytes_of(pieces));
    }
  }

 private:
  std::vector<std::unique_ptr<Decoder>> steps_;
  std::string where_;
};

}  // namespace

std::unique_ptr<Decoder> make_decoder(const JsonPart& part) {
  const std::string type = part.type();
  if (type == "ByteLevel") return std::make_unique<ByteLevelDecoder>();
  if (type == "ByteFallback") return std::make_unique<ByteFallbackDecoder>();
  if (type == "Fuse") return std::make_unique<FuseDecoder>();
  if (type == "Strip") {
    return std::make_unique<StripDecoder>(part.character("content"), part.whole_number("start"),
                                          part.whole_number("stop"));
  }
  if (type == "Replace")
    return std::make_unique<ReplaceDecoder>(make_pattern(part.part("pattern")), part.text("content"), part.where());
  if (type == "Metaspace") {
    const bool prepended = part.flag("add_prefix_space", true) && part.text("prepend_scheme", "always") != "never";
    return std::make_unique<MetaspaceDecoder>(part.character("replacement"), prepended);
  }
  if (type == "WordPiece") return std::make_unique<WordPieceDecoder>(part.text("prefix"), part.flag("cleanup"));
  if (type == "BPEDecoder") return std::make_unique<SuffixDecoder>(part.text("suffix"));
  if (type == "CTC") {
    return std::make_unique<CtcDecoder>(part.text("pad_token"), part.text("word_delimiter_token"),
                                        part.flag("cleanup"));
  }
  if (type != "Sequence") {
    part.refuse_type("ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, WordPiece, BPEDecoder, CTC, Sequence");
  }
  std::vector<std::unique_ptr<Decoder>> steps;
  for (size_t i = 0; i < part.list("decoders").size(); ++i) steps.push_back(make_decoder(part.element("decoders", i)));
  return std::make_unique<SequenceDecoder>(std::move(steps), part.where());
}

}  // namespace espalier::text::internal
