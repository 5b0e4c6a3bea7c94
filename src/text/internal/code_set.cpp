#include "text/internal/code_set.h"

#include <algorithm>

#include "base/format.h"
#include "text/unicode_table.h"

namespace espalier::text::internal {

namespace {

struct Property {
  std::string_view name, long_name;
  Category first, last;
};

// Long names as Oniguruma knows them after dropping case, blanks, '-' and '_'.
constexpr Property kProperties[] = {
    {"l", "letter", Category::kUppercase, Category::kOtherLetter},
    {"lu", "uppercaseletter", Category::kUppercase, Category::kUppercase},
    {"ll", "lowercaseletter", Category::kLowercase, Category::kLowercase},
    {"lt", "titlecaseletter", Category::kTitlecase, Category::kTitlecase},
    {"lm", "modifierletter", Category::kModifierLetter, Category::kModifierLetter},
    {"lo", "otherletter", Category::kOtherLetter, Category::kOtherLetter},
    {"m", "mark", Category::kNonspacingMark, Category::kEnclosingMark},
    {"mn", "nonspacingmark", Category::kNonspacingMark, Category::kNonspacingMark},
    {"mc", "spacingmark", Category::kSpacingMark, Category::kSpacingMark},
    {"me", "enclosingmark", Category::kEnclosingMark, Category::kEnclosingMark},
    {"n", "number", Category::kDecimalNumber, Category::kOtherNumber},
    {"nd", "decimalnumber", Category::kDecimalNumber, Category::kDecimalNumber},
    {"nl", "letternumber", Category::kLetterNumber, Category::kLetterNumber},
    {"no", "othernumber", Category::kOtherNumber, Category::kOtherNumber},
    {"p", "punctuation", Category::kConnector, Category::kOtherPunctuation},
    {"pc", "connectorpunctuation", Category::kConnector, Category::kConnector},
    {"pd", "dashpunctuation", Category::kDash, Category::kDash},
    {"ps", "openpunctuation", Category::kOpen, Category::kOpen},
    {"pe", "closepunctuation", Category::kClose, Category::kClose},
    {"pi", "initialpunctuation", Category::kInitialQuote, Category::kInitialQuote},
    {"pf", "finalpunctuation", Category::kFinalQuote, Category::kFinalQuote},
    {"po", "otherpunctuation", Category::kOtherPunctuation, Category::kOtherPunctuation},
    {"s", "symbol", Category::kMathSymbol, Category::kOtherSymbol},
    {"sm", "mathsymbol", Category::kMathSymbol, Category::kMathSymbol},
    {"sc", "currencysymbol", Category::kCurrencySymbol, Category::kCurrencySymbol},
    {"sk", "modifiersymbol", Category::kModifierSymbol, Category::kModifierSymbol},
    {"so", "othersymbol", Category::kOtherSymbol, Category::kOtherSymbol},
    {"z", "separator", Category::kSpace, Category::kParagraphSeparator},
    {"zs", "spaceseparator", Category::kSpace, Category::kSpace},
    {"zl", "lineseparator", Category::kLineSeparator, Category::kLineSeparator},
    {"zp", "paragraphseparator", Category::kParagraphSeparator, Category::kParagraphSeparator},
    {"cc", "control", Category::kControl, Category::kControl},
    {"cf", "format", Category::kFormat, Category::kFormat},
    {"co", "privateuse", Category::kPrivateUse, Category::kPrivateUse},
};

}  // namespace

std::optional<CodeSet> CodeSet::of_property(std::string_view name) {
  std::string plain;
  for (const char letter : name) {
    if (letter == ' ' || letter == '-' || letter == '_') continue;
    plain += letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + 32) : letter;
  }
  for (const Property& property : kProperties) {
    if (plain != property.name && plain != property.long_name) continue;
    return where([&property](char32_t code) { return is_between(category(code), property.first, property.last); });
  }
  return std::nullopt;
}

void CodeSet::add(char32_t first, char32_t last) {
  CodeSet one;
  one.ranges_.push_back({first, last});
  add(one);
}

void CodeSet::add(const CodeSet& other) {
  std::vector<Range> all = ranges_;
  all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
  std::sort(all.begin(), all.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
  ranges_.clear();
  for (const Range& range : all) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

CodeSet CodeSet::complement() const {
  CodeSet rest;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) rest.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLast) rest.ranges_.push_back({next, kLast});
  return rest;
}

CodeSet CodeSet::intersection(const CodeSet& other) const {
  CodeSet outside = complement();
  outside.add(other.complement());
  return outside.complement();
}

std::string CodeSet::to_class() const {
  CodeSet surrogates;
  surrogates.add(0xD800, 0xDFFF);
  std::string text = "[";
  for (const Range& range : intersection(surrogates.complement()).ranges_) {
    text += format_printf("\\x{%X}", static_cast<unsigned>(range.first));
    if (range.last > range.first) text += format_printf("-\\x{%X}", static_cast<unsigned>(range.last));
  }
  return text == "[" ? "(*FAIL)" : text + "]";
}

}  // namespace espalier::text::internal
