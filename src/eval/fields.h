// The fields of a document, with the types that a task wants; anything else is a UserError that names file, line, field
// and what it should be.
//
//   const Fields document(json, "piqa.jsonl:17");
//   document.text("goal");
//   document.texts("choices.text");       // the list that is field "text" of the object "choices"
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace espalier::eval {

using Json = nlohmann::ordered_json;

class Fields {
 public:
  // `document` must outlive it.
  Fields(const Json& document, std::string place) : document_(&document), place_(std::move(place)) {}

  const Json& json() const { return *document_; }
  bool has(const std::string& path) const { return find(path) != nullptr; }
  std::string text(const std::string& path) const;
  std::vector<std::string> texts(const std::string& path) const;
  std::vector<Fields> objects(const std::string& path) const;  // of a list
  // A whole number from `smallest` to `largest`; its digits in a string (a table of text has no other) and true and
  // false, for 1 and 0, are taken as well.
  int64_t integer(const std::string& path, int64_t smallest = 0, int64_t largest = INT32_MAX) const;
  double number(const std::string& path) const;  // "-Infinity" and "NaN", as strings, are some too
  // A class: its number, or its name as raw files of the data sets have it.
  int64_t label(const std::string& path, const std::vector<std::string>& names) const;

  [[noreturn]] void refuse(const std::string& reason) const;

 private:
  const Json* find(const std::string& path) const;
  const Json& get(const std::string& path) const;
  [[noreturn]] void refuse_type(const std::string& path, const char* wanted) const;

  const Json* document_;
  std::string place_;
};

}  // namespace espalier::eval
