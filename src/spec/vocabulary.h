// The vocabulary of a model: what its tokenizer has, and what its embedding has rows for.
#pragma once

#include <cstdint>

namespace espalier::spec {

struct Vocabulary {
  int64_t size = 0;         // ids of the tokenizer: 0 .. size - 1; 0: not known yet
  int64_t padded_size = 0;  // rows of the embedding; fixed when the model is created
  bool operator==(const Vocabulary&) const = default;
};

// Rows of the embedding for a tokenizer of `vocab_size`: rounded up to a multiple of divisible_by * tensor_parallel.
constexpr int64_t padded_vocab_size(int64_t vocab_size, int64_t divisible_by, int64_t tensor_parallel) {
  const int64_t multiple = divisible_by * tensor_parallel;
  return (vocab_size + multiple - 1) / multiple * multiple;
}

}  // namespace espalier::spec
