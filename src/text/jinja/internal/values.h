// Values of a template are JSON; an absent one is that value which is none of JSON's types. Tuples are lists.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/python_literal.h"

namespace espalier::text::jinja {

using python::Json;

inline Json undefined() { return Json(Json::value_t::discarded); }
inline bool is_undefined(const Json& value) { return value.is_discarded(); }

[[noreturn]] void refuse(const std::string& what);       // a UserError
bool is_true(const Json& value);                         // as Python has it
bool is_equal(const Json& left, const Json& right);      // Python's ==: True is 1
std::string text_of(const Json& value);                  // str(); of an absent value nothing
std::string shown(const Json& value, size_t size = 60);  // the begin of repr(), for complaints
// What for visits: of an object the names, of a string the characters.
// No more than `most` bytes.
Json list_of(const Json& value, size_t most = SIZE_MAX);
Json binary_operation(const std::string& name, const Json& left, const Json& right);
Json sliced(const Json& value, const Json& first, const Json& last, const Json& step);
std::string to_json(const Json& value, int indent);  // json.dumps(ensure_ascii=False); no indent: -1
Json negative(const Json& value);
// Where `part` is from `from` on, in time that grows with the sum of the lengths.
size_t found_at(std::string_view text, std::string_view part, size_t from);
// What namespace() makes is a dict that is marked.
Json made_namespace(const std::vector<std::pair<std::string, Json>>& fields);
bool is_namespace(const Json& value);
// How much memory a value is about; nesting that is too deep is refused.
size_t weight_of(const Json& value, int depth = 0);

}  // namespace espalier::text::jinja
