#include "eval/ignored_text.h"

#include <utf8proc.h>

#include <string_view>

#include "base/format.h"
#include "text/python_text.h"
#include "text/utf8.h"

namespace espalier::eval {
namespace {

bool is_ascii_punctuation(char32_t code) {
  return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') || (code >= '[' && code <= '`') ||
         (code >= '{' && code <= '~');
}

bool is_unicode_punctuation(char32_t code) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

template <class Drop>
std::string without(const std::string& text, Drop drop) {
  std::string kept;
  for (size_t at = 0; at < text.size();) {
    const text::CodePoint point = text::decode_utf8(text.data() + at);
    if (!drop(point.code)) kept.append(text, at, static_cast<size_t>(point.num_bytes));
    at += static_cast<size_t>(point.num_bytes);
  }
  return kept;
}

}  // namespace

std::string IgnoredText::remove(std::string text) const {
  for (const auto& regex : regexes) text = regex->remove_all(text);
  if (ignores_case) text = text::python::lowercase(text);
  if (ignores_punctuation)
    text = without(text, punctuation == Punctuation::kAscii ? is_ascii_punctuation : is_unicode_punctuation);
  if (ignores_numbers) text = without(text, [](char32_t code) { return code >= '0' && code <= '9'; });
  return text;
}

IgnoredText read_ignored_text(const Json& entry, IgnoredText::Punctuation punctuation, const std::string& place,
                              Problems& problems) {
  IgnoredText ignored;
  ignored.punctuation = punctuation;
  for (const auto& [key, member] : {std::pair{"ignore_case", &IgnoredText::ignores_case},
                                    {"ignore_punctuation", &IgnoredText::ignores_punctuation},
                                    {"ignore_numbers", &IgnoredText::ignores_numbers}}) {
    const Json value = entry.value(key, Json(false));
    if (!value.is_boolean()) problems.add(place, ": ", key, " must be true or false");
    ignored.*member = value == Json(true);
  }
  const Json regexes = entry.value("regexes_to_ignore", Json());
  if (!regexes.is_null() && !regexes.is_array()) problems.add(place, ": regexes_to_ignore is not a list");
  for (const Json& regex : regexes.is_array() ? regexes : Json::array()) {
    if (!regex.is_string()) {
      problems.add(place, ": regexes_to_ignore: ", regex.dump(), " is not a text");
      continue;
    }
    try {
      ignored.regexes.push_back(
          std::make_shared<const text::python::Regex>(regex.get<std::string>(), place + ": regexes_to_ignore"));
    } catch (const UserError& error) {
      problems.add(error.what());
    }
  }
  return ignored;
}

}  // namespace espalier::eval
