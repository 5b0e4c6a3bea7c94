// toml++, with its assertions as errors of the text: version 3.3 asserts that a table header begins with a key, which
// "[=x]" does not. Files that need TOML include this and not toml++ itself, so that all see the same macro.
#pragma once

#include <string>

namespace espalier {

[[noreturn]] void refuse_toml_assertion();

}  // namespace espalier

#define TOML_ASSERT(expression) ((expression) ? static_cast<void>(0) : ::espalier::refuse_toml_assertion())
#include <toml++/toml.h>

namespace espalier {

// The table of a text. Whatever is wrong with it is a toml::parse_error that knows its line; `name` is the file's.
toml::table parse_toml_text(const std::string& text, const std::string& name);

}  // namespace espalier
