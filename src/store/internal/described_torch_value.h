// For tests: a tree of values as tests/oracle/torch_files_oracle.py describes what Python holds.
#pragma once

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <string>

#include "store/torch_value.h"

namespace espalier::store::test {

inline std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += kDigits[static_cast<uint8_t>(byte) >> 4];
    text += kDigits[static_cast<uint8_t>(byte) & 15];
  }
  return text;
}

// The bits from the highest on: JSON has no infinity.
inline std::string bits_of(double number) {
  const uint64_t bits = __builtin_bswap64(std::bit_cast<uint64_t>(number));
  return hex(std::string(reinterpret_cast<const char*>(&bits), sizeof bits));
}

inline std::string content_of(const TensorView& view) {
  std::string bytes(static_cast<size_t>(view.num_bytes()), '\0');
  TensorReader(view).read(bytes.data());
  return bytes;
}

inline nlohmann::json described(const TorchItems& items);

inline nlohmann::json described(const TorchValue& value) {
  switch (value.kind()) {
    case TorchValue::Kind::kNone: return nullptr;
    case TorchValue::Kind::kBool: return value.as_bool("");
    case TorchValue::Kind::kInt: return value.as_int("");
    case TorchValue::Kind::kFloat: return {{"float", bits_of(value.as_float(""))}};
    case TorchValue::Kind::kString: return value.as_string("");
    case TorchValue::Kind::kBytes: return {{"bytes", hex(value.bytes())}};
    case TorchValue::Kind::kList: return described(value.items());
    case TorchValue::Kind::kTuple: return {{"tuple", described(value.items())}, {"class", value.class_name()}};
    case TorchValue::Kind::kSet: {
      nlohmann::json items = described(value.items());
      std::sort(items.begin(), items.end());
      return {{"set", items}};
    }
    case TorchValue::Kind::kDict: {
      nlohmann::json pairs = nlohmann::json::array();
      for (const auto& [key, item] : value.pairs())
        pairs.push_back(nlohmann::json::array({described(key), described(item)}));
      return {{"dict", pairs}, {"class", value.class_name()}};
    }
    case TorchValue::Kind::kTensor: {
      const TensorView& view = value.view();
      return {{"tensor", to_string(view.dtype)}, {"shape", view.shape}, {"hex", hex(content_of(view))}};
    }
    case TorchValue::Kind::kArray:
      return {{"array", value.array().dtype}, {"shape", value.array().shape}, {"hex", hex(value.array().data)}};
    case TorchValue::Kind::kGlobal: return {{"global", value.class_name()}};
    case TorchValue::Kind::kRecord:
      return {
          {"record", value.class_name()}, {"arguments", described(value.items())}, {"state", described(value.state())}};
  }
  return "unknown kind";
}

inline nlohmann::json described(const TorchItems& items) {
  nlohmann::json all = nlohmann::json::array();
  for (const TorchValue& item : items) all.push_back(described(item));
  return all;
}

}  // namespace espalier::store::test
