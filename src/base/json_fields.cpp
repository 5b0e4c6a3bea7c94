#include "base/json_fields.h"

namespace espalier {
namespace {

constexpr int kParseErrors = 199, kWrongType = 302, kWrongIndex = 401, kNoKey = 403;  // nlohmann's numbers: 1xx parsing

// The text between two marks of a message; empty where they are not there.
std::string between(const std::string& text, const std::string& before, const std::string& after) {
  const size_t found = text.find(before);
  if (found == std::string::npos) return "";
  const size_t begin = found + before.size(), end = text.find(after, begin);
  return end == std::string::npos ? text.substr(begin) : text.substr(begin, end - begin);
}

}  // namespace

std::string field_complaint(const nlohmann::json::exception& error) {
  const std::string text = error.what();
  if (error.id <= kParseErrors) return "expected JSON";
  if (error.id == kNoKey) return concat("'", between(text, "key '", "' not found"), "' is missing");
  if (error.id == kWrongIndex) return "a list is too short";
  if (error.id == kWrongType)
    return concat("expected a value of type ", between(text, "type must be ", ","), ", found ",
                  between(text, "but is ", "\n"));
  return "expected an object or a list, found another kind of value";
}

}  // namespace espalier
