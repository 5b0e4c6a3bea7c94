// Values as Python writes and reads them: what templates of task files print, and what is read out of such text again.
// None, True, False, whole and decimal numbers, strings, lists, tuples (as lists) and dicts with strings for keys are
// JSON values here.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace espalier::text::python {

using Json = nlohmann::ordered_json;

// ast.literal_eval. A UserError (kBadData) says where it stops being a literal.
Json parse_literal(std::string_view text);

std::string python_repr(const Json& value);
std::string python_str(const Json& value);  // repr, but a string is itself

}  // namespace espalier::text::python
