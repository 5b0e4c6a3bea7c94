// What a position may attend to, as a description: never an s x s tensor. The same model code therefore serves
// training, packed documents, sliding windows, context parallelism and generation from a cache.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace espalier::tensor {

// Keys and values of earlier positions of every layer, for generation. Rows are prompts; all rows hold the same
// number of positions (`length`), the first of them possibly padding (see AttentionContext::first_key).
struct KeyValueCache {
  struct Layer {
    at::Tensor keys, values;  // [b, heads (groups that share keys), capacity, head size], compute type
  };
  std::vector<Layer> layers;
  int64_t capacity = 0;
  int64_t length = 0;  // positions already there; the model adds the new ones after its forward pass
};

struct AttentionContext {
  // Query q of row r sees the keys first_key[r][q] .. q (causal). Undefined tensor: from 0. [b, s] int32, positions
  // counted from the start of the row (cache included). Documents set it to the start of their document.
  at::Tensor first_key;
  int64_t window = 0;  // 0: unlimited; otherwise a query sees at most the last `window` keys, itself included
  // Slope of each local query head, [heads] float32; undefined without ALiBi. The bias is slope * (key - query).
  at::Tensor alibi_slopes;
  KeyValueCache* cache = nullptr;

  // Dropout of attention probabilities: site = layer, counter = sample number, global head, query, key / 4.
  double dropout = 0;
  uint64_t seed = 0;
  std::vector<int64_t> sample_numbers;  // b entries
  int64_t first_head = 0;               // global number of local head 0, where the heads are split over ranks
};

}  // namespace espalier::tensor
