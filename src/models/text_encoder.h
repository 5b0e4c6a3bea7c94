// A whole model that makes a vector of a text, so that questions and passages can be compared by inner products.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace espalier::models {

class TextEncoder {
 public:
  enum class Side { kQuery, kContext };
  virtual ~TextEncoder() = default;

  virtual int64_t embedding_size() const = 0;
  virtual int64_t max_positions() const = 0;  // of the longest text
  // ids [s], special ones included, to [embedding size] fp32, without graph. A function of these ids alone.
  virtual at::Tensor embed(const at::Tensor& ids, Side side) const = 0;
};

}  // namespace espalier::models
