// What a template may call: functions, methods, filters and tests. Unknown names are refused when they are read.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/jinja/internal/node.h"

namespace espalier::text::jinja {

bool is_function(const std::string& name);
bool is_of_chats(const std::string& function);  // what transformers adds to Jinja
bool is_method(const std::string& name);
bool is_filter(const std::string& name);
bool is_keyword(const std::string& filter, const std::string& name);
bool is_test(const std::string& name);
bool takes_argument(const std::string& test);
bool is_of_loop(const std::string& name);
// map, select and their like call what a string names: true for a literal that names such a thing.
bool calls_by_name(const std::string& filter);
// Why such a call is not supported; empty where nothing is wrong.
std::string named_call(const TemplateNode& filter);

struct Arguments {
  std::vector<Json> values;
  std::vector<std::pair<std::string, Json>> named;
  size_t most = SIZE_MAX;  // bytes that a result may have

  const Json* find(const std::string& name, size_t place) const;
};
Json call_method(const Json& target, const std::string& name, const Arguments& arguments);
Json apply_filter(const Json& value, const std::string& name, const Arguments& arguments);
bool passes_test(const Json& value, const std::string& name, const std::vector<Json>& arguments);

// The attribute of a dict, an absent value where it has none.
Json attribute_by_path(const Json& value, const std::string& path);
void check_arguments(const std::string& name, size_t given, size_t least, size_t most);
const std::string& string_of(const Json& value, const std::string& name);
Json joined(const Json& list, const std::string& separator, size_t most);
Json index_in(const Json& target, const Json& wanted);

}  // namespace espalier::text::jinja
