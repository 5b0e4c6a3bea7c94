// Repairs glitches of text as ftfy 6.3 does: mojibake, HTML's references, ligatures, widths, quotes, line ends, control
// characters, normal form.
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "curate/steps/html_references.h"
#include "curate/steps/mojibake.h"
#include "curate/steps/steps.h"
#include "text/unicode_table.h"
#include "text/utf8.h"

namespace espalier::curate {
namespace {

enum class Unescape { kAuto, kAlways, kNever };
enum class Normalization { kNone, kNfc, kNfd, kNfkc, kNfkd };

struct FtfyOptions {
  Unescape unescape_html = Unescape::kAuto;
  bool remove_terminal_escapes = true, fix_encoding = true, fix_latin_ligatures = true, fix_character_width = true,
       uncurl_quotes = true, fix_line_breaks = true, remove_control_chars = true;
  MojibakeOptions mojibake;
  Normalization normalization = Normalization::kNfc;
  int64_t max_decode_length = 1'000'000;
};

// "&amp;amp;amp;...": each round of repairs removes one layer. No text that people wrote has this many.
constexpr int kMostTurns = 100;

void normalize(Normalization form, std::u32string& text) {
  if (form == Normalization::kNone) return;
  std::string bytes;
  for (const char32_t code : text) text::append_utf8(code, bytes);
  int options = UTF8PROC_STABLE;
  const bool composes = form == Normalization::kNfc || form == Normalization::kNfkc;
  options |= composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == Normalization::kNfkc || form == Normalization::kNfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(bytes.data()), static_cast<utf8proc_ssize_t>(bytes.size()),
                   &result, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  ESPALIER_CHECK(size >= 0, "utf8proc: ", utf8proc_errmsg(size));
  text = text::to_utf32({reinterpret_cast<const char*>(result), static_cast<size_t>(size)});
}

// Each character that `replacement` returns a text for becomes it.
template <class Replacement>
void replace_characters(std::u32string& text, const Replacement& replacement) {
  std::u32string result;
  result.reserve(text.size());
  for (const char32_t code : text) {
    if (const char32_t* const other = replacement(code))
      result += other;
    else
      result += code;
  }
  text = std::move(result);
}

// Those that are seldom meant; two letters for the sake of an old code page too.
const char32_t* letters_of_ligature(char32_t code) {
  constexpr const char32_t* kDigraphs[] = {U"D\u017d", U"D\u017e", U"d\u017e", U"LJ", U"Lj",
                                           U"lj",      U"NJ",      U"Nj",      U"nj"};
  constexpr const char32_t* kTypographic[] = {U"ff", U"fi", U"fl", U"ffi", U"ffl", U"\u017ft", U"st"};
  if (code >= 0x1c4 && code <= 0x1cc) return kDigraphs[code - 0x1c4];
  if (code >= 0xfb00 && code <= 0xfb06) return kTypographic[code - 0xfb00];
  switch (code) {
    case 0x132: return U"IJ";
    case 0x133: return U"ij";
    case 0x149: return U"\u02bcn";
    case 0x1f1: return U"DZ";
    case 0x1f2: return U"Dz";
    case 0x1f3: return U"dz";
    default: return nullptr;
  }
}

// Halfwidth and fullwidth forms become those that they are compatible with, one by one.
void fix_character_width(std::u32string& text) {
  static const std::vector<std::u32string> forms = [] {
    std::vector<std::u32string> all;
    for (char32_t code = 0xff01; code < 0xfff0; ++code) {
      all.emplace_back(1, code);
      normalize(Normalization::kNfkc, all.back());
    }
    return all;
  }();
  replace_characters(text, [](char32_t code) -> const char32_t* {
    if (code == 0x3000) return U" ";
    return code >= 0xff01 && code < 0xfff0 ? forms[code - 0xff01].c_str() : nullptr;
  });
}

void uncurl_quotes(std::u32string& text) {
  for (char32_t& code : text) {
    if (code == 0x2bc || (code >= 0x2018 && code <= 0x201b)) code = '\'';
    if (code >= 0x201c && code <= 0x201f) code = '"';
  }
}

void fix_line_breaks(std::u32string& text) {
  std::u32string result;
  for (size_t at = 0; at < text.size(); ++at) {
    const char32_t code = text[at];
    if (code == '\r' && at + 1 < text.size() && text[at + 1] == '\n') continue;
    result += code == '\r' || code == 0x2028 || code == 0x2029 || code == 0x85 ? U'\n' : code;
  }
  text = std::move(result);
}

void remove_terminal_escapes(std::u32string& text) {
  std::u32string result;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == 0x1b && at + 1 < text.size() && text[at + 1] == '[') {
      size_t end = at + 2;
      while (end < text.size() && (text[end] == ';' || text::category(text[end]) == text::Category::kDecimalNumber))
        ++end;
      const char32_t lower = end < text.size() ? text[end] | 0x20u : 0;
      if (lower >= 'a' && lower <= 'z') {
        at = end + 1;
        continue;
      }
    }
    result += text[at++];
  }
  text = std::move(result);
}

// Not those that are blanks, nor those that direct the shapes and order of letters.
bool is_unwanted_control(char32_t code) {
  if (code < 0x20) return code < 0x9 || code == 0xb || code > 0xd;
  return code == 0x7f || (code >= 0x206a && code <= 0x206f) || code == 0xfeff || (code >= 0xfff9 && code <= 0xfffc);
}

class FtfyStep : public Step {
 public:
  explicit FtfyStep(const FtfyOptions& options) : options_(options) {}

  Fate apply(Document& document) const override {
    const std::u32string text = text::to_utf32(document.text);
    std::string result;
    Unescape unescape = options_.unescape_html;
    for (size_t at = 0; at < text.size();) {
      size_t end = std::min(text.find(U'\n', at), text.size() - 1) + 1;
      end = std::min(end, at + static_cast<size_t>(options_.max_decode_length));
      std::u32string segment = text.substr(at, end - at);
      at = end;
      // A text in which a < was met is HTML: what is a reference there, and after it, is meant to be one.
      if (unescape == Unescape::kAuto && segment.find(U'<') != std::u32string::npos) unescape = Unescape::kNever;
      if (!fix_segment(segment, unescape)) return Fate::dropped("too_complex");
      for (const char32_t code : segment) text::append_utf8(code, result);
    }
    document.text = std::move(result);
    return Fate::kept();
  }

 private:
  // Until nothing changes. False where that takes too long.
  bool fix_segment(std::u32string& text, Unescape unescape) const {
    for (int turn = 0; turn < kMostTurns; ++turn) {
      const std::u32string before = text;
      fix_once(text, unescape);
      if (text == before) return true;
    }
    return false;
  }

  void fix_once(std::u32string& text, Unescape unescape) const {
    if (unescape != Unescape::kNever) text = unescape_html(text);
    if (options_.fix_encoding) text = fix_encoding(std::move(text), options_.mojibake);
    if (options_.mojibake.fix_c1_controls) fix_c1_controls(text);
    if (options_.fix_latin_ligatures) replace_characters(text, letters_of_ligature);
    if (options_.fix_character_width) fix_character_width(text);
    if (options_.uncurl_quotes) uncurl_quotes(text);
    if (options_.fix_line_breaks) fix_line_breaks(text);
    if (options_.remove_terminal_escapes) remove_terminal_escapes(text);
    if (options_.remove_control_chars) std::erase_if(text, is_unwanted_control);
    normalize(options_.normalization, text);
  }

  FtfyOptions options_;
};

class FtfyMaker : public StepMaker {
 public:
  void add_rows(OptionTable& table) override {
    table.add_choice("--unescape-html", options_.unescape_html,
                     {{"auto", Unescape::kAuto}, {"always", Unescape::kAlways}, {"never", Unescape::kNever}},
                     "references such as &amp; become characters; auto: until a line has a <");
    table.add_negative("--no-remove-terminal-escapes", options_.remove_terminal_escapes, "keep colours of terminals");
    table.add_negative("--no-fix-encoding", options_.fix_encoding, "keep mojibake");
    table.add_negative("--no-restore-byte-a0", options_.mojibake.restore_byte_a0,
                       "keep mojibake in which a blank stands for the byte 0xA0");
    table.add_negative("--no-replace-lossy-sequences", options_.mojibake.replace_lossy_sequences,
                       "keep mojibake that lost bytes");
    table.add_negative("--no-decode-inconsistent-utf8", options_.mojibake.decode_inconsistent_utf8,
                       "keep mojibake in a line with characters that cannot be mojibake");
    table.add_negative("--no-fix-c1-controls", options_.mojibake.fix_c1_controls, "keep U+0080 to U+009F");
    table.add_negative("--no-fix-latin-ligatures", options_.fix_latin_ligatures, "keep \xef\xac\x81 and the like");
    table.add_negative("--no-fix-character-width", options_.fix_character_width, "keep halfwidth and fullwidth forms");
    table.add_negative("--no-uncurl-quotes", options_.uncurl_quotes, "keep curly quotation marks");
    table.add_negative("--no-fix-line-breaks", options_.fix_line_breaks, "keep line ends other than \\n");
    table.add_negative("--no-remove-control-chars", options_.remove_control_chars,
                       "keep control characters, U+FEFF too");
    table.add_choice("--normalization", options_.normalization,
                     {{"none", Normalization::kNone},
                      {"NFC", Normalization::kNfc},
                      {"NFD", Normalization::kNfd},
                      {"NFKC", Normalization::kNfkc},
                      {"NFKD", Normalization::kNfkd}},
                     "Unicode's normal form");
    table.add("--max-decode-length", options_.max_decode_length, "characters of a line that are repaired at once")
        .minimum(1);
  }
  std::unique_ptr<Step> make_step() const override { return std::make_unique<FtfyStep>(options_); }

 private:
  FtfyOptions options_;
};

}  // namespace

std::unique_ptr<StepMaker> ftfy_maker() { return std::make_unique<FtfyMaker>(); }

}  // namespace espalier::curate
