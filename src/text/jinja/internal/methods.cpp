// Methods of strings, lists and dicts.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "text/jinja/internal/calls.h"
#include "text/jinja/internal/values.h"
#include "text/python_text.h"

namespace espalier::text::jinja {
namespace {

constexpr size_t kSizeOfEntry = 64;  // about, of a list

void check_room(size_t needed, size_t most) {
  if (needed > most) refuse("the template takes too much memory");
}

Json strip_by(const std::string& name, const std::string& text, const std::vector<Json>& arguments) {
  std::string_view kept = text;
  if (arguments.empty() || arguments[0].is_null())
    return std::string(name == "lstrip"   ? python::strip_left(text)
                       : name == "rstrip" ? python::strip_right(text)
                                          : python::strip(text));
  const std::string& characters = string_of(arguments[0], "an argument of " + name);
  if (std::any_of(characters.begin(), characters.end(), [](char c) { return static_cast<uint8_t>(c) >= 0x80; }))
    refuse(name + " accepts only ASCII characters");
  if (name != "rstrip") kept = kept.substr(std::min(kept.find_first_not_of(characters), kept.size()));
  return std::string(name == "lstrip" ? kept : python::strip_right(kept, characters));
}

Json split_words(const std::string& text, size_t most_parts, size_t room) {
  Json parts = Json::array();
  std::string_view rest = python::strip_left(text);
  while (!rest.empty()) {
    check_room((parts.size() + 1) * kSizeOfEntry, room);
    if (parts.size() == most_parts) {
      parts.push_back(std::string(rest));
      break;
    }
    const std::string_view first = python::first_word(rest);
    parts.push_back(std::string(first));
    rest = python::strip_left(rest.substr(first.size()));
  }
  return parts;
}

Json split_by(const std::string& text, const Arguments& given) {
  const std::vector<Json>& arguments = given.values;
  if (arguments.size() == 2 && !arguments[1].is_number_integer()) refuse("the second argument of split is a number");
  const auto most = static_cast<size_t>(arguments.size() == 2 ? arguments[1].get<int64_t>() : -1);
  if (arguments.empty() || arguments[0].is_null()) return split_words(text, most, given.most);
  const std::string& separator = string_of(arguments[0], "an argument of split");
  if (separator.empty()) refuse("split does not accept an empty separator");
  Json parts = Json::array();
  size_t begin = 0;
  for (size_t end; (end = found_at(text, separator, begin)) != std::string::npos && most != parts.size();
       begin = end + separator.size()) {
    check_room((parts.size() + 1) * kSizeOfEntry, given.most);
    parts.push_back(text.substr(begin, end - begin));
  }
  parts.push_back(text.substr(begin));
  return parts;
}

// From the right, with a separator.
Json split_last(const std::string& text, const Arguments& given) {
  if (given.values.size() < 2) return split_by(text, given);
  const std::string& separator = string_of(given.values[0], "an argument of rsplit");
  if (separator.empty() || !given.values[1].is_number_integer()) refuse("rsplit needs a separator and a number");
  const Json whole = split_by(text, {.values = {given.values[0]}, .named = {}, .most = given.most});
  const auto wanted = given.values[1].get<int64_t>();
  if (wanted < 0 || wanted >= static_cast<int64_t>(whole.size())) return whole;
  const size_t num_first = whole.size() - static_cast<size_t>(wanted);
  Json parts = Json::array();
  parts.push_back(joined(Json(whole.begin(), whole.begin() + static_cast<int64_t>(num_first)), separator, given.most));
  parts.insert(parts.end(), whole.begin() + static_cast<int64_t>(num_first), whole.end());
  return parts;
}

Json split_lines(const std::string& text, const Arguments& given) {
  Json lines = split_by(text, {.values = {"\n"}, .named = {}, .most = given.most});
  if (lines.back().get_ref<const std::string&>().empty()) lines.erase(lines.size() - 1);
  return lines;
}

Json replace(const std::string& text, const Arguments& given) {
  const std::string &from = string_of(given.values[0], "an argument of replace"),
                    &to = string_of(given.values[1], "an argument of replace");
  if (from.empty()) refuse("replace does not accept an empty text");
  int64_t left = given.values.size() == 3 && given.values[2].is_number_integer() ? given.values[2].get<int64_t>() : -1;
  std::string replaced;
  size_t begin = 0;
  for (size_t end; left-- != 0 && (end = found_at(text, from, begin)) != std::string::npos; begin = end + from.size()) {
    replaced.append(text, begin, end - begin).append(to);
    check_room(replaced.size(), given.most);
  }
  return replaced.append(text, begin);
}

Json count_in(const Json& target, const Json& wanted) {
  if (target.is_array())
    return std::count_if(target.begin(), target.end(), [&](const Json& entry) { return is_equal(entry, wanted); });
  const std::string &text = string_of(target, "count"), &part = string_of(wanted, "an argument of count");
  if (part.empty()) refuse("count does not accept an empty text");
  int64_t count = 0;
  for (size_t at = 0; (at = found_at(text, part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

Json of_dict(const Json& dict, const std::string& name, const std::vector<Json>& arguments) {
  if (!dict.is_object()) refuse(concat(name, " is of a dict, not of ", shown(dict)));
  if (name == "get") {
    const Json& key = arguments[0];
    if (key.is_string() && dict.contains(key.get_ref<const std::string&>()))
      return dict.at(key.get_ref<const std::string&>());
    return arguments.size() == 2 ? arguments[1] : Json();
  }
  Json list = Json::array();
  for (const auto& entry : dict.items())
    list.push_back(name == "keys"     ? Json(entry.key())
                   : name == "values" ? entry.value()
                                      : Json::array({entry.key(), entry.value()}));
  return list;
}

// One text, or one of a list.
bool begins_or_ends(const std::string& text, const std::string& name, const Json& wanted) {
  if (wanted.is_array())
    return std::any_of(wanted.begin(), wanted.end(),
                       [&](const Json& entry) { return begins_or_ends(text, name, entry); });
  const std::string& part = string_of(wanted, "an argument of " + name);
  return name == "startswith" ? text.starts_with(part) : text.ends_with(part);
}

}  // namespace

size_t found_at(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const void* const found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

Json joined(const Json& list, const std::string& separator, size_t most) {
  if (!list.is_array()) refuse(concat("join is of a list, not of ", shown(list)));
  std::string text;
  for (size_t i = 0; i < list.size(); ++i) {
    if (i > 0) text += separator;
    text += text_of(list[i]);
    check_room(text.size(), most);
  }
  return text;
}

Json index_in(const Json& target, const Json& wanted) {
  if (target.is_array()) {
    const auto found =
        std::find_if(target.begin(), target.end(), [&](const Json& entry) { return is_equal(entry, wanted); });
    return found == target.end() ? int64_t{-1} : found - target.begin();
  }
  const std::string& text = string_of(target, "index");
  const size_t place = found_at(text, string_of(wanted, "an argument of index"), 0);
  if (place == std::string::npos) return -1;
  return python::num_characters(std::string_view(text).substr(0, place));
}

Json call_method(const Json& target, const std::string& name, const Arguments& arguments) {
  const std::vector<Json>& values = arguments.values;
  const auto takes = [&](size_t least, size_t most) { check_arguments(name, values.size(), least, most); };
  if (name == "get" || name == "items" || name == "keys" || name == "values") {
    takes(name == "get" ? 1 : 0, name == "get" ? 2 : 0);
    return of_dict(target, name, values);
  }
  if (name == "index" || name == "find" || name == "count") {
    takes(1, 1);
    if (name == "count") return count_in(target, values[0]);
    Json place = index_in(target, values[0]);
    if (name == "index" && place == -1)
      refuse(concat(python::python_repr(values[0]), " is not in ", python::python_repr(target).substr(0, 80)));
    return place;
  }
  const std::string& text = string_of(target, name);
  if (name.ends_with("strip")) return takes(0, 1), strip_by(name, text, values);
  if (name == "split") return takes(0, 2), split_by(text, arguments);
  if (name == "rsplit") return takes(0, 2), split_last(text, arguments);
  if (name == "splitlines") return takes(0, 0), split_lines(text, arguments);
  if (name == "lower") return takes(0, 0), python::lowercase(text);
  if (name == "upper") return takes(0, 0), python::uppercase(text);
  if (name == "capitalize") return takes(0, 0), python::capitalize(text);
  if (name == "join") return takes(1, 1), joined(list_of(values[0], arguments.most), text, arguments.most);
  if (name == "replace") return takes(2, 3), replace(text, arguments);
  return takes(1, 1), begins_or_ends(text, name, values[0]);
}

}  // namespace espalier::text::jinja
