// Log-probabilities of a row of logits. The sums run in a fixed order, so equal rows have equal scores to the bit.
#pragma once

#include <cstdint>
#include <vector>

#include "infer/engine/request.h"

namespace espalier::infer {

// The `count` most likely ids, equals by id; all of them where there are fewer.
std::vector<Alternative> likeliest(const float* logits, int64_t vocab_size, double normalizer, int64_t count);

// `normalizer`: log_normalizer of the row.
TokenScore score_token(const float* logits, int64_t vocab_size, double normalizer, int32_t id,
                       int64_t num_alternatives);

}  // namespace espalier::infer
