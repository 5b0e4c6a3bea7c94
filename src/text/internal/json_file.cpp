#include "text/internal/json_file.h"

#include "base/error.h"
#include "text/internal/serde_json.h"
#include "text/internal/tokenizer_file.h"
#include "text/utf8.h"

namespace espalier::text::internal {

nlohmann::json read_json_file(const std::filesystem::path& path) {
  const std::string content = read_tokenizer_file(path);
  if (content.find('\0') != std::string::npos)
    throw UserError(concat("'", path.string(), "' is a binary file, and JSON is expected: give tokenizer.json, or the ",
                           "folder that holds it"),
                    ExitCode::kBadData);
  return parse_serde_json(content, path.string());
}

JsonPart::JsonPart(const nlohmann::json& value, std::string where) : value_(value), where_(std::move(where)) {
  if (!value_.is_object()) fail(concat("expected an object, found ", value_.dump().substr(0, 40)));
}

bool JsonPart::has(const char* key) const {
  const auto found = value_.find(key);
  return found != value_.end() && !found->is_null();
}

const nlohmann::json& JsonPart::field(const char* key) const {
  if (!has(key)) fail(concat("'", key, "' is missing"));
  return value_.at(key);
}

std::string JsonPart::text(const char* key) const {
  const nlohmann::json& found = field(key);
  if (!found.is_string()) fail(concat("'", key, "' must be a string, found ", found.dump().substr(0, 40)));
  return found.get<std::string>();
}

bool JsonPart::flag(const char* key) const {
  const nlohmann::json& found = field(key);
  if (!found.is_boolean()) fail(concat("'", key, "' must be true or false, found ", found.dump().substr(0, 40)));
  return found.get<bool>();
}

int64_t JsonPart::whole_number(const char* key) const {
  const nlohmann::json& found = field(key);
  if (!found.is_number_integer() || found.get<int64_t>() < 0) {
    fail(concat("'", key, "' must be a whole number, found ", found.dump().substr(0, 40)));
  }
  return found.get<int64_t>();
}

char32_t JsonPart::character(const char* key) const {
  const std::u32string codes = to_utf32(text(key));
  if (codes.size() != 1) fail(concat("'", key, "' must be one character, found '", text(key), "'"));
  return codes[0];
}

const nlohmann::json& JsonPart::list(const char* key) const {
  const nlohmann::json& found = field(key);
  if (!found.is_array()) fail(concat("'", key, "' must be a list, found ", found.dump().substr(0, 40)));
  return found;
}

JsonPart JsonPart::part(const char* key) const { return JsonPart(field(key), where_ + "." + key); }

JsonPart JsonPart::element(const char* key, size_t index) const {
  return JsonPart(list(key).at(index), concat(where_, ".", key, "[", index, "]"));
}

void JsonPart::fail(const std::string& complaint) const {
  throw UserError(concat(where_, ": ", complaint), ExitCode::kBadData);
}

void JsonPart::refuse_type(const std::string& supported) const {
  fail(concat("'", type(), "' is not supported; supported: ", supported));
}

}  // namespace espalier::text::internal
