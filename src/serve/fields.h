// The fields of a JSON request: each is read once, with its bounds, and every problem is reported in one reply. A field
// that nobody has asked for is a problem too. null is as good as absent.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace espalier::serve {

class Fields {
 public:
  // ApiError where `body` is not a JSON object.
  explicit Fields(const std::string& body);

  const nlohmann::json* find(const std::string& name);
  bool boolean(const std::string& name, bool fallback);
  std::optional<int64_t> integer(const std::string& name, int64_t least, int64_t most);
  double number(const std::string& name, double fallback, double least, double most);
  std::string text(const std::string& name, const std::string& fallback = "");
  std::vector<std::string> texts(const std::string& name);  // one, or a list of them
  std::vector<int32_t> ids(const std::string& name);

  // Fields that cannot change an answer.
  void ignore(std::initializer_list<const char*> names);
  // A field that could, and does nothing here.
  void refuse(const std::string& name, const std::string& why);
  void problem(const std::string& name, const std::string& message);
  // ApiError (400) if there is a problem.
  void finish();

 private:
  nlohmann::json body_;
  std::set<std::string> known_;
  std::vector<std::pair<std::string, std::string>> problems_;
};

}  // namespace espalier::serve
