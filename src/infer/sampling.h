// From logits to the next token.
#pragma once

#include <cstdint>
#include <vector>

namespace espalier::infer {

struct SamplingConfig {
  double temperature = 1.0;  // > 0
  int64_t top_k = 0;         // 0: all; 1: greedy
  double top_p = 0;          // 0: off; else the smallest set of tokens whose probability reaches it
  uint64_t seed = 0;
};

struct SampledToken {
  int32_t id = 0;
  double log_probability = 0;  // under the unmodified distribution (no temperature, no filter)
};

// `logits`: `count` fp32 values; ids from `vocab_size` on (padding) are never chosen and have no probability.
// Filters as Megatron's: the temperature, then the top k (ties with the k-th are kept), then top p, the token that
// crosses p included. Draws from Philox with key (seed, "generate") and counter (row, position), so a prompt's text
// does not depend on the others of its batch.
SampledToken sample_token(const float* logits, int64_t vocab_size, const SamplingConfig& config, int64_t row,
                          int64_t position);

}  // namespace espalier::infer
