// What a user does with a tree of values: goes through all of it and reads its tensors.
#pragma once

#include <string>

#include "store/torch_value.h"

namespace espalier::fuzz {

inline void read_tensor(const store::TensorView& view) {
  if (view.num_bytes() > 1 << 26) return;  // expanded
  std::string bytes(static_cast<size_t>(view.num_bytes()), '\0');
  store::TensorReader(view).read(bytes.data());
}

inline void use_value(const store::TorchValue& value) {
  using Kind = store::TorchValue::Kind;
  value.describe();
  switch (value.kind()) {
    case Kind::kTensor: read_tensor(value.view()); break;
    case Kind::kDict:
      for (const auto& [key, item] : value.pairs()) use_value(key), use_value(item);
      break;
    case Kind::kRecord: use_value(value.state()); [[fallthrough]];
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kSet:
      for (const store::TorchValue& item : value.items()) use_value(item);
      break;
    default: break;
  }
}

}  // namespace espalier::fuzz
