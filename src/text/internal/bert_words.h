// The words of a text as BERT's tokenizers cut it: control characters dropped, blanks and ideographs apart, lower case
// without accents if asked for, punctuation apart.
//
//   bert.for_each_run(text, [&](std::string_view run) {         // depends on nothing around it: made for a cache
//     bert.for_each_word(run, buffer, [&](std::string_view word) { ... });
//   });
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/unicode_table.h"
#include "text/utf8.h"

namespace espalier::text::internal {

class BertWords {
 public:
  enum class Flavour {
    kMegatron,    // lower case, then accents; a final sigma is one; Python 3.11's Unicode
    kTokenizers,  // accents, then lower case; BertNormalizer and BertPreTokenizer of Hugging Face's tokenizers
  };
  struct Options {
    Flavour flavour = Flavour::kMegatron;
    bool lowercase = true, strip_accents = true;
  };

  explicit BertWords(Options options);

  // The stretches of valid UTF-8 between blanks, and each ideograph.
  template <class Visit>
  void for_each_run(std::string_view text, Visit&& visit) const {
    const char* const end = text.data() + text.size();
    const char* begin = nullptr;
    for (const char* at = text.data(); at < end;) {
      const CodePoint point = decode_utf8(at);
      const char* next = at + point.num_bytes;
      const uint8_t found = classes_[point.code];
      if ((found & (kBlank | kIdeograph)) == 0) {
        if (begin == nullptr) begin = at;
      } else {
        if (begin != nullptr) visit(std::string_view(begin, static_cast<size_t>(at - begin)));
        begin = nullptr;
        if ((found & kIdeograph) != 0) visit(std::string_view(at, static_cast<size_t>(next - at)));
      }
      at = next;
    }
    if (begin != nullptr) visit(std::string_view(begin, static_cast<size_t>(end - begin)));
  }

  // The words of one run; valid until the next call with the same buffer.
  template <class Visit>
  void for_each_word(std::string_view run, std::string& buffer, Visit&& visit) const {
    normalize_run(run, buffer);
    const char* const end = buffer.data() + buffer.size();
    const char* begin = buffer.data();
    for (const char* at = begin; at < end;) {
      const CodePoint point = decode_utf8(at);
      const char* next = at + point.num_bytes;
      if ((classes_[point.code] & kPunctuation) != 0) {
        if (begin < at) visit(std::string_view(begin, static_cast<size_t>(at - begin)));
        visit(std::string_view(at, static_cast<size_t>(point.num_bytes)));
        begin = next;
      }
      at = next;
    }
    if (begin < end) visit(std::string_view(begin, static_cast<size_t>(end - begin)));
  }

  // What the whole text becomes before it is cut: blanks are spaces, ideographs are between two. For BertNormalizer,
  // any part of which may be off.
  struct Parts {
    bool clean_text = true, apart_ideographs = true;
  };
  std::string normalized(std::string_view text, Parts parts) const;
  // True if nothing is left of a character.
  bool drops(char32_t code, Parts parts) const {
    const int bits = (parts.clean_text ? kDropped : 0) | (options_.strip_accents ? kMark : 0);
    return (classes_[code] & bits) != 0;
  }

 private:
  static constexpr uint8_t kDropped = 1, kBlank = 2, kIdeograph = 4, kMark = 8, kPunctuation = 16;

  void add_class(uint8_t bit, const CodeRange* ranges, size_t size);
  void normalize_run(std::string_view run, std::string& buffer) const;
  void strip_accents(std::string& text) const;
  void lowercase_simply(std::string& text) const;
  void lowercase_as_python(std::string& text) const;

  Options options_;
  std::vector<uint8_t> classes_;  // by code point
};

}  // namespace espalier::text::internal
