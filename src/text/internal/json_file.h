// A JSON file and its parts, read so that every complaint names the file and the place in it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace espalier::text::internal {

// A UserError says what is wrong and where.
nlohmann::json read_json_file(const std::filesystem::path& path);

// One object of a configuration, such as the normalizer of a tokenizer.json.
class JsonPart {
 public:
  // `where` is shown to people: "bloom/tokenizer.json: pre_tokenizer". The JSON must outlive the part.
  JsonPart(const nlohmann::json& value, std::string where);

  const std::string& where() const { return where_; }
  const nlohmann::json& value() const { return value_; }
  bool has(const char* key) const;  // there and not null
  std::string type() const { return text("type"); }

  // A missing field (or null) without a default is an error, as is one of another type.
  std::string text(const char* key) const;
  std::string text(const char* key, const std::string& fallback) const { return has(key) ? text(key) : fallback; }
  bool flag(const char* key) const;
  bool flag(const char* key, bool fallback) const { return has(key) ? flag(key) : fallback; }
  int64_t whole_number(const char* key) const;
  char32_t character(const char* key) const;  // a string of one code point
  const nlohmann::json& list(const char* key) const;
  JsonPart part(const char* key) const;  // "where.key"
  JsonPart element(const char* key, size_t index) const;

  [[noreturn]] void fail(const std::string& complaint) const;         // "WHERE: COMPLAINT"
  [[noreturn]] void refuse_type(const std::string& supported) const;  // "... 'X' is not supported; supported: ..."

 private:
  const nlohmann::json& field(const char* key) const;

  const nlohmann::json& value_;
  std::string where_;
};

}  // namespace espalier::text::internal
