#include "curate/steps/mojibake.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "curate/steps/mojibake_tables.h"

namespace espalier::curate {
namespace {

// Windows' pages, with their unassigned bytes as control characters; U+FFFD is the byte 0x1A, whose meaning got lost.
bool is_sloppy(CodePage page) { return page >= CodePage::kWindows1252 && page <= CodePage::kWindows1257; }

using Encoder = std::unordered_map<char32_t, uint8_t>;

Encoder make_encoder(CodePage page) {
  Encoder encoder;
  for (int byte = 0; byte < 0x80; ++byte) encoder[static_cast<char32_t>(byte)] = static_cast<uint8_t>(byte);
  for (int byte = 0x80; byte < 0x100; ++byte)
    encoder[kCodePages[static_cast<int>(page)][byte - 0x80]] = static_cast<uint8_t>(byte);
  if (is_sloppy(page)) {
    encoder.erase(0x1a);
    encoder[0xfffd] = 0x1a;
  }
  return encoder;
}

std::optional<std::string> encode(std::u32string_view text, CodePage page) {
  static const auto encoders = [] {
    std::array<Encoder, kNumCodePages> all;
    for (int index = 0; index < kNumCodePages; ++index)
      all[static_cast<size_t>(index)] = make_encoder(static_cast<CodePage>(index));
    return all;
  }();
  const Encoder& encoder = encoders[static_cast<size_t>(page)];
  std::string bytes;
  bytes.reserve(text.size());
  for (const char32_t code : text) {
    const auto found = encoder.find(code);
    if (found == encoder.end()) return std::nullopt;
    bytes += static_cast<char>(found->second);
  }
  return bytes;
}

// The whole text as UTF-8 that was read as one code page.
std::optional<std::u32string> undo_code_page(std::u32string_view text, const MojibakeOptions& options) {
  for (int index = 0; index < kNumCodePages; ++index) {
    const auto page = static_cast<CodePage>(index);
    std::optional<std::string> bytes = encode(text, page);
    if (!bytes) continue;
    if (options.restore_byte_a0 && page != CodePage::kMacRoman && has_lost_a0(*bytes)) restore_byte_a0(*bytes);
    if (options.replace_lossy_sequences && is_sloppy(page)) replace_lossy_sequences(*bytes);
    if (std::optional<std::u32string> decoded = decode_utf8_variants(*bytes)) return decoded;
  }
  return std::nullopt;
}

bool is_in_class(char32_t code, MojibakeClass name) {
  const std::vector<CharRange>& ranges = kMojibakeClasses[static_cast<int>(name)];
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), code,
                                      [](char32_t c, const CharRange& range) { return c < range.first; });
  return after != ranges.begin() && code <= std::prev(after)->last;
}

// How many characters from `at` on look like one sequence of UTF-8; 0: none.
size_t sequence_length(std::u32string_view text, size_t at) {
  constexpr std::array kFirst = {MojibakeClass::kFirstOf2, MojibakeClass::kFirstOf3, MojibakeClass::kFirstOf4};
  for (size_t tail = 1; tail <= kFirst.size(); ++tail) {
    if (at + tail >= text.size() || !is_in_class(text[at], kFirst[tail - 1])) continue;
    const std::u32string_view rest = text.substr(at + 1, tail);
    if (std::all_of(rest.begin(), rest.end(), [](char32_t c) { return is_in_class(c, MojibakeClass::kContinuation); }))
      return tail + 1;
  }
  return 0;
}

std::u32string repair_runs(std::u32string_view text, const MojibakeOptions& options) {
  std::u32string result;
  size_t at = 0;
  while (const std::optional<MojibakeRun> run = find_mojibake_run(text, at)) {
    const std::u32string_view part = text.substr(run->begin, run->end - run->begin);
    result += text.substr(at, run->begin - at);
    // A run that is the whole text would be asked about for ever.
    const bool repairs = part.size() < text.size() && is_bad(part);
    result += repairs ? fix_encoding(std::u32string(part), options) : std::u32string(part);
    at = run->end;
  }
  return result += text.substr(at);
}

// Latin-1 that was Windows-1252, without what this page does not assign.
std::optional<std::u32string> undo_latin1(std::u32string_view text) {
  std::u32string result;
  for (const char32_t code : text) {
    if (code > 0xff || code == 0x81 || code == 0x8d || code == 0x8f || code == 0x90 || code == 0x9d)
      return std::nullopt;
    result += code < 0x80 ? code : kCodePages[static_cast<int>(CodePage::kWindows1252)][code - 0x80];
  }
  return result;
}

std::u32string fix_encoding_once(const std::u32string& text, const MojibakeOptions& options) {
  const bool is_ascii = std::all_of(text.begin(), text.end(), [](char32_t code) { return code < 0x80; });
  if (is_ascii || !is_bad(text)) return text;
  if (std::optional<std::u32string> fixed = undo_code_page(text, options)) return *std::move(fixed);
  if (options.decode_inconsistent_utf8) {
    std::u32string fixed = repair_runs(text, options);
    if (fixed != text) return fixed;
  }
  if (const std::optional<std::u32string> fixed = undo_latin1(text); fixed && *fixed != text) return *fixed;
  std::u32string fixed = text;
  if (options.fix_c1_controls) fix_c1_controls(fixed);
  return fixed;
}

}  // namespace

std::u32string fix_encoding(std::u32string text, const MojibakeOptions& options) {
  for (;;) {
    std::u32string fixed = fix_encoding_once(text, options);
    if (fixed == text) return text;
    text = std::move(fixed);
  }
}

void fix_c1_controls(std::u32string& text) {
  for (char32_t& code : text)
    if (code >= 0x80 && code <= 0x9f) code = kCodePages[static_cast<int>(CodePage::kWindows1252)][code - 0x80];
}

std::optional<MojibakeRun> find_mojibake_run(std::u32string_view text, size_t at) {
  for (size_t begin = at; begin < text.size(); ++begin) {
    if (text[begin] < 0x80) continue;
    if (begin > 0 && is_in_class(text[begin - 1], MojibakeClass::kContinuationStrict)) continue;
    size_t end = begin;
    while (const size_t size = sequence_length(text, end)) end += size;
    if (end > begin) return MojibakeRun{begin, end};
  }
  return std::nullopt;
}

}  // namespace espalier::curate
