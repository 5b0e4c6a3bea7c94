// Takes keys out of a config.json, collecting every problem, and knows at the end which keys nobody asked for.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"

namespace espalier::convert {

class ConfigReader {
 public:
  using Json = nlohmann::ordered_json;

  // `prefix` precedes key names in messages: "rope_scaling.".
  ConfigReader(const Json& object, Problems& problems, std::string prefix = "")
      : object_(object), problems_(problems), prefix_(std::move(prefix)) {}

  // A key that is absent or null counts as not given.
  bool has(const std::string& key);
  bool is_null(const std::string& key) const { return object_.contains(key) && object_[key].is_null(); }

  // The first of several spellings that is given.
  std::optional<int64_t> size(std::initializer_list<const char*> keys, int64_t most = 1'000'000'000);  // from 1 on
  int64_t required_size(std::initializer_list<const char*> keys, int64_t most);
  double number(const std::string& key, double otherwise, double least, double most);
  bool flag(const std::string& key, bool otherwise);
  std::string text(const std::string& key, const std::string& otherwise);
  std::vector<double> numbers(const std::string& key);
  std::vector<std::string> texts(const std::string& key);
  const Json* object(const std::string& key);  // null unless it is an object

  // A key that must have this value, or be absent.
  void require(const std::string& key, const Json& value, const std::string& why);
  void ignore(std::initializer_list<const char*> keys) { seen_.insert(keys.begin(), keys.end()); }

  template <class... Parts>
  void problem(const std::string& key, const Parts&... parts) {
    problems_.add(prefix_, key, ": ", parts...);
  }
  std::vector<std::string> unread_keys() const;
  Problems& problems() { return problems_; }

 private:
  const Json* find(const std::string& key);
  void expect(const std::string& key, const char* expected, const Json& found);

  const Json& object_;
  Problems& problems_;
  std::string prefix_;
  std::set<std::string> seen_;
};

// As large as our options allow; products of them fit in 64 bits.
constexpr int64_t kMostLayers = 10'000, kMostHidden = 1'000'000, kMostFfn = 10'000'000, kMostHeads = 100'000;
constexpr int64_t kMostRows = 1'000'000'000;

// Every class that is named must be one of `known`, or of `also`, which lack a head.
void check_architectures(ConfigReader& reader, const std::vector<std::string>& known,
                         const std::vector<std::string>& also = {});

}  // namespace espalier::convert
