#include "curate/steps/html_references.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "curate/steps/mojibake_tables.h"

namespace espalier::curate {
namespace {

constexpr size_t kMostCharacters = 24;  // between & and ;

using Entities = std::unordered_map<std::string, std::u32string>;

const Entities& entities() {
  static const Entities all = [] {
    Entities result;
    for (std::string_view rest = kHtmlEntities; !rest.empty();) {
      const size_t colon = rest.find(':'), end = rest.find(' ');
      ESPALIER_CHECK(colon < end && end != std::string_view::npos, "table of entities");
      std::u32string& text = result[std::string(rest.substr(0, colon))];
      for (size_t at = colon; at < end; at = std::min(rest.find(',', at + 1), end))
        text += static_cast<char32_t>(std::stoul(std::string(rest.substr(at + 1, 6)), nullptr, 16));
      rest.remove_prefix(end + 1);
    }
    return result;
  }();
  return all;
}

bool is_no_character(uint32_t code) {
  const bool is_control = (code >= 1 && code <= 8) || code == 0xb || (code >= 0xe && code <= 0x1f) || code == 0x7f;
  return is_control || (code >= 0xfdd0 && code <= 0xfdef) || (code & 0xfffe) == 0xfffe;
}

// The character of a number, as HTML has it: Windows-1252 where Unicode has control characters.
std::u32string character_of(uint32_t code) {
  if (code == 0) return U"\ufffd";
  if (code >= 0x80 && code <= 0x9f) return {kCodePages[static_cast<int>(CodePage::kWindows1252)][code - 0x80]};
  if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return U"\ufffd";
  if (is_no_character(code)) return {};
  return {static_cast<char32_t>(code)};
}

// `digits` is what stands between &# and ;
std::optional<std::u32string> numeric_reference(std::string_view digits) {
  const bool is_hexadecimal = !digits.empty() && (digits[0] == 'x' || digits[0] == 'X');
  if (is_hexadecimal) digits.remove_prefix(1);
  if (digits.empty()) return std::nullopt;
  uint32_t code = 0;
  for (const char digit : digits) {
    const bool is_decimal = digit >= '0' && digit <= '9';
    const char lower = static_cast<char>(digit | 0x20);
    if (!is_decimal && !(is_hexadecimal && lower >= 'a' && lower <= 'f')) return std::nullopt;
    const auto value = static_cast<uint32_t>(is_decimal ? digit - '0' : lower - 'a' + 10);
    code = std::min(code * (is_hexadecimal ? 16u : 10u) + value, 0x110000u);
  }
  if (code == ';') return std::nullopt;  // ftfy takes it for a reference that was read in part
  return character_of(code);
}

std::optional<std::u32string> reference(std::string_view inside) {
  if (inside.starts_with('#')) return numeric_reference(inside.substr(1));
  const auto found = entities().find(std::string(inside));
  if (found == entities().end()) return std::nullopt;
  return found->second;
}

bool is_ascii_alphanumeric(char32_t code) {
  return (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') || (code >= 'a' && code <= 'z');
}

}  // namespace

std::u32string unescape_html(std::u32string_view text) {
  std::u32string result;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '&') {
      std::string inside;
      size_t end = at + 1;
      if (end < text.size() && text[end] == '#') inside += static_cast<char>(text[end++]);
      const size_t first = end;
      while (end < text.size() && end - first < kMostCharacters && is_ascii_alphanumeric(text[end]))
        inside += static_cast<char>(text[end++]);
      if (end > first && end < text.size() && text[end] == ';') {
        if (const std::optional<std::u32string> character = reference(inside)) {
          result += *character;
          at = end + 1;
          continue;
        }
      }
    }
    result += text[at++];
  }
  return result;
}

}  // namespace espalier::curate
