// What --json prints: an object a line. Text that is not UTF-8 is repaired, so that output never fails for it.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

namespace espalier {

template <class Json>
void print_json(const Json& json) {
  std::printf("%s\n", json.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
}

inline std::string quoted_json(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace espalier
