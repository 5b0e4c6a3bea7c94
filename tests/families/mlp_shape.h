#pragma once

#include <cstdint>

namespace espalier::test {

// The family's options.
struct MlpShape {
  int64_t num_layers = 0, hidden_size = 0;
  double hidden_dropout = 0.1;
};

}  // namespace espalier::test
