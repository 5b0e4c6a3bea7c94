#include "models/decoder.h"

#include <ATen/ATen.h>

#include "base/error.h"

namespace espalier::models {

Encoded Decoder::encode(const at::Tensor&, const std::vector<int64_t>&) const {
  ESPALIER_CHECK(false, "a model without an encoder");
  return {};
}

std::vector<at::Tensor> Decoder::cross_keys_and_values(const Encoded&) const {
  ESPALIER_CHECK(false, "a model without an encoder");
  return {};
}

tensor::KeyValueCache new_cache(const DecoderShape& model, at::ScalarType type, int64_t rows, int64_t capacity) {
  tensor::KeyValueCache cache;
  cache.capacity = capacity;
  cache.lengths.assign(static_cast<size_t>(rows), 0);
  const auto part = [&] { return at::empty({rows, model.num_groups, capacity, model.head_size}, type); };
  cache.layers.resize(static_cast<size_t>(model.first_layer));
  for (int64_t layer = model.first_layer; layer < model.num_layers; ++layer)
    cache.layers.push_back({part(), part(), {}});
  return cache;
}

}  // namespace espalier::models
