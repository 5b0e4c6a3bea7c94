// Where the values of transformer layers come from in passes that keep no graph, when not all of them are in memory.
#pragma once

#include <cstdint>

namespace espalier::models {

class LayerSource {
 public:
  virtual ~LayerSource() = default;
  // Between the two the parameters of the layer have values. `layer`: number in the model, from 0; no two at once.
  virtual void enter(int64_t layer) = 0;
  virtual void leave(int64_t layer) = 0;
};

}  // namespace espalier::models
