// Why transformers' classes cannot hold a model (HfCodec::obstacles).
#pragma once

#include <string>
#include <vector>

namespace espalier::convert {

// Collects reasons: `reasons.unless(config.window_size == 0, "there is no sliding window")`.
struct Reasons {
  std::vector<std::string> list;
  void unless(bool good, const std::string& reason) {
    if (!good) list.push_back(reason);
  }
};

}  // namespace espalier::convert
