#include "text/internal/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "text/unicode_table.h"
#include "text/utf8.h"

namespace espalier::text::internal {

namespace {

// Below these, every code point is its own normal form and reorders nothing.
char32_t first_changing(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc: return 0x300;
    case NormalForm::kNfd: return 0xC0;
    default: return 0xA0;
  }
}

bool is_unchanged(NormalForm form, const std::string& text) {
  const char32_t limit = first_changing(form);
  for (const char* at = text.data(); at < text.data() + text.size();) {
    const CodePoint point = decode_utf8(at);
    if (point.code >= limit) return false;
    at += point.num_bytes;
  }
  return true;
}

int combining_class(int32_t code) { return utf8proc_get_property(code)->combining_class; }

// Stable, as the standard asks: marks between two starters are sorted by their class.
void reorder_marks(std::vector<int32_t>& codes) {
  for (auto at = codes.begin(); at != codes.end();) {
    if (combining_class(*at) == 0) {
      ++at;
      continue;
    }
    const auto run_end = std::find_if(at, codes.end(), [](int32_t code) { return combining_class(code) == 0; });
    std::stable_sort(at, run_end, [](int32_t a, int32_t b) { return combining_class(a) < combining_class(b); });
    at = run_end;
  }
}

// Appends the normal form of a stretch without inert characters, and clears it.
void finish(NormalForm form, std::vector<int32_t>& codes, std::string& output) {
  if (codes.empty()) return;
  reorder_marks(codes);
  auto size = static_cast<utf8proc_ssize_t>(codes.size());
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) {
    size = utf8proc_normalize_utf32(codes.data(), size,
                                    static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    ESPALIER_CHECK(size >= 0, "utf8proc: ", utf8proc_errmsg(size));
  }
  for (utf8proc_ssize_t i = 0; i < size; ++i) append_utf8(static_cast<char32_t>(codes[static_cast<size_t>(i)]), output);
  codes.clear();
}

}  // namespace

void normalize(NormalForm form, std::string& text, bool (*is_inert)(char32_t)) {
  if (is_unchanged(form, text)) return;
  constexpr int kLongestDecomposition = 32;  // 18 in Unicode: U+FDFA
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<int32_t> codes;
  std::string output;
  output.reserve(text.size() + text.size() / 8);
  for (const char* at = text.data(); at < text.data() + text.size();) {
    const CodePoint point = decode_utf8(at);
    at += point.num_bytes;
    if (point.code >= 0x300 && is_inert(point.code)) {
      finish(form, codes, output);
      append_utf8(point.code, output);
      continue;
    }
    const size_t before = codes.size();
    codes.resize(before + kLongestDecomposition);
    const utf8proc_ssize_t added = utf8proc_decompose_char(static_cast<int32_t>(point.code), codes.data() + before,
                                                           kLongestDecomposition, options, nullptr);
    ESPALIER_CHECK(added >= 0 && added <= kLongestDecomposition, "utf8proc: ", utf8proc_errmsg(added));
    codes.resize(before + static_cast<size_t>(added));
  }
  finish(form, codes, output);
  text = std::move(output);
}

}  // namespace espalier::text::internal
