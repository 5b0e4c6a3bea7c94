// Which characters side by side tell of mojibake: the classes and rules of ftfy 6.3, as facts.
#include <initializer_list>

#include "base/error.h"
#include "curate/regex.h"
#include "curate/steps/mojibake.h"
#include "curate/steps/mojibake_tables.h"
#include "text/utf8.h"

namespace espalier::curate {
namespace {

// The inside of [...] of a regular expression.
std::string range_text(MojibakeClass name) {
  std::string inside;
  const auto add = [&inside](char32_t code) {
    if (code < 0x80) inside += '\\';
    text::append_utf8(code, inside);
  };
  for (const CharRange& range : kMojibakeClasses[static_cast<int>(name)]) {
    add(range.first);
    if (range.last == range.first) continue;
    inside += '-';
    add(range.last);
  }
  return inside;
}

// One character: of a class, or written out.
struct OneOf {
  std::string inside;
  OneOf(const char* written) : inside(written) {}          // NOLINT(google-explicit-constructor)
  OneOf(MojibakeClass name) : inside(range_text(name)) {}  // NOLINT(google-explicit-constructor)
  OneOf operator|(const OneOf& other) const {
    OneOf both = *this;
    both.inside += other.inside;
    return both;
  }
};

class Rules {
 public:
  void add(std::initializer_list<OneOf> characters) {
    std::string rule;
    for (const OneOf& character : characters) rule += "[" + character.inside + "]";
    add_expression(rule);
  }
  void add_expression(const std::string& rule) {
    if (!expression_.empty()) expression_ += '|';
    expression_ += rule;
  }
  const std::string& expression() const { return expression_; }

 private:
  std::string expression_;
};

// As Python has \s and \w.
constexpr const char* kBlankCharacters =
    "\\t-\\r\\x1c-\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
constexpr const char* kWord = "\\p{L}\\p{N}_";

void add_rules_of_classes(Rules& rules) {
  using enum MojibakeClass;
  const OneOf accented = OneOf(kLowerAccented) | kUpperAccented, closing = OneOf(kEndPunctuation),
              opening = OneOf(kStartPunctuation), money = OneOf(kCurrency), number = OneOf(kNumeric), box = OneOf(kBox),
              law = OneOf(kLaw);
  const OneOf rare = accented | box | opening | closing | money | number | law;
  rules.add({kC1});
  rules.add({rare | kBad, kBad});
  rules.add({"a-zA-Z", OneOf(kLowerCommon) | kUpperCommon, kBad});
  rules.add({kBad, rare});
  rules.add({OneOf(kLowerAccented) | kLowerCommon | box | closing | money | number, kUpperAccented});
  rules.add({box | closing | money | number, kLowerAccented});
  rules.add({OneOf(kLowerAccented) | box | closing, money});
  rules.add({kBlankCharacters, kUpperAccented, money});
  rules.add({OneOf(kUpperAccented) | box, number | law});
  rules.add({accented | box | money | closing, opening, number});
  rules.add({accented | money | number | box | law, closing, opening});
  rules.add({money | number | box, opening});
  rules.add({"a-z", kUpperAccented, opening | money});
  rules.add({box, kKaomoji});
  rules.add({accented | money | number | opening | closing | law, box});
  rules.add({box, closing});
  rules.add({accented, opening | closing, kWord});
  rules.add({kUpperAccented, "°"});
}

void add_rules_of_code_pages(Rules& rules) {
  using enum MojibakeClass;
  const OneOf opening = kStartPunctuation, closing = kEndPunctuation;
  rules.add({"Œœ", "^A-Za-z"});
  // Windows-1252
  rules.add({"ÂÃÎÐ", OneOf("€œŠš¢£Ÿž\\x{a0}\\x{ad}®©°·»–—´") | opening | closing});
  rules.add({"×", "²³"});
  const OneOf arabic = OneOf(kCommon) | kCurrency | kBad | kNumeric | opening | "ŸŠ®°µ»";
  rules.add({"ØÙ", arabic, "ØÙ", arabic});
  rules.add({"à", "²µ¹¼½¾"});
  rules.add({"Ã", "\\x{a0}¡"});
  rules.add_expression(std::string("[a-z][") + kBlankCharacters + "]?[ÃÂ] |^[ÃÂ] ");
  rules.add({OneOf("a-z.,?!") | closing, "Â", OneOf("\\x20") | opening | closing});
  // Mac Roman
  rules.add({"√", "±∂†≠®™´≤≥¥µø"});
  rules.add({"≈", "°¢"});
  rules.add({"‚", "Ä", "ìîïòôúùû†°¢π"});
  rules.add({"‚", "âó", "àä°ê"});
  // Windows-1251
  rules.add({"в", "Ђ"});
  const OneOf odd = OneOf(kC1) | kBad | opening | closing | kCurrency | "°";
  rules.add({"ВГРС", odd | "µ", "ВГРС"});
  rules.add_expression("ГўВЂВ[^\\n][A-Za-z ]");
  // Windows-1253
  rules.add({"β", "€", "™\\x{a0}Ά\\x{ad}®°"});
  rules.add({"ΒΓΞΟ", odd, "ΒΓΞΟ"});
  // Windows-1257
  rules.add({"ā", "€"});
}

}  // namespace

bool is_bad(std::u32string_view text) {
  static const Regex expression = [] {
    Rules rules;
    add_rules_of_classes(rules);
    add_rules_of_code_pages(rules);
    return Regex(rules.expression(), false);
  }();
  std::string bytes;
  bytes.reserve(text.size() * 2);
  for (const char32_t code : text) text::append_utf8(code, bytes);
  return expression.matches(bytes);
}

}  // namespace espalier::curate
