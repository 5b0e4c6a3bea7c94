#include "eval/detokenizers.h"

#include "text/python_text.h"

namespace espalier::eval {
namespace {

using text::python::replace_all;
using text::python::replace_in_order;
using text::python::Replacement;
using text::python::strip;

// Every pair of marks, from the left, without the blanks that its inside begins and ends with. Pairs may span lines.
std::string close_up(std::string_view text, char opening, char closing) {
  std::string closed;
  for (;;) {
    const size_t open = text.find(opening);
    const size_t close = open == std::string_view::npos ? open : text.find(closing, open + 1);
    if (close == std::string_view::npos) return closed.append(text);
    closed.append(text.substr(0, open + 1)).append(strip(text.substr(open + 1, close - open - 1))) += closing;
    text.remove_prefix(close + 1);
  }
}

// Looks as if the slashes were to enclose a pattern: upstream has them as characters, in what is found and in what
// takes its place.
std::string replace_digit_in_slashes(std::string_view text) {
  constexpr size_t kSize = 5;  // "/' 5/"
  std::string replaced;
  for (;;) {
    const size_t found = text.find("/' ");
    if (found == std::string_view::npos || found + kSize > text.size()) return replaced.append(text);
    const bool matches = text[found + 3] >= '0' && text[found + 3] <= '9' && text[found + 4] == '/';
    replaced.append(text.substr(0, found)).append(matches ? "/'[0-9]/" : "/");
    text.remove_prefix(found + (matches ? kSize : 1));
  }
}

}  // namespace

std::string detokenize_wikitext(std::string_view text) {
  static constexpr Replacement kPunctuation[] = {
      {" @-@ ", "-"}, {" @,@ ", ","}, {" @.@ ", "."}, {" : ", ": "}, {" ; ", "; "},
      {" . ", ". "},  {" ! ", "! "},  {" ? ", "? "},  {" , ", ", "},
  };
  static constexpr Replacement kRest[] = {
      {"= = = =", "===="}, {"= = =", "==="}, {"= =", "=="},  {" \u00b0 ", "\u00b0"},
      {" \n", "\n"},       {"\n ", "\n"},    {" N ", " 1 "}, {" 's", "'s"},
  };
  std::string prose = replace_in_order(replace_digit_in_slashes(replace_all(text, "s '", "s'")), kPunctuation);
  for (const auto& [opening, closing] : {std::pair{'(', ')'}, {'[', ']'}, {'{', '}'}, {'"', '"'}, {'\'', '\''}})
    prose = close_up(prose, opening, closing);
  return replace_in_order(prose, kRest);
}

std::string detokenize_penn_treebank(std::string_view text) {
  static constexpr Replacement kRules[] = {
      {" '", "'"}, {" \n", "\n"}, {"\n ", "\n"}, {" n't", "n't"}, {" N ", "1 "}, {"$ 1", "$1"}, {"# 1", "#1"},
  };
  return replace_in_order(text, kRules);
}

std::string detokenize_general(std::string_view text) {
  static constexpr Replacement kRules[] = {
      {" n't", "n't"}, {" )", ")"}, {"( ", "("}, {"\" ", "\""}, {" \"", "\""}, {" '", "'"}, {" .", "."}, {" ,", ","},
  };
  return replace_in_order(text, kRules);
}

}  // namespace espalier::eval
