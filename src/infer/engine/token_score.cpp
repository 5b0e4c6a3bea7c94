#include "infer/engine/token_score.h"

#include <algorithm>
#include <numeric>

namespace espalier::infer {

std::vector<Alternative> likeliest(const float* logits, int64_t vocab_size, double normalizer, int64_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(vocab_size));
  std::iota(ids.begin(), ids.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
  const auto end = ids.begin() + std::min(count, vocab_size);
  std::partial_sort(ids.begin(), end, ids.end(), likelier);
  std::vector<Alternative> alternatives;
  for (auto id = ids.begin(); id != end; ++id) alternatives.push_back({*id, logits[*id] - normalizer});
  return alternatives;
}

TokenScore score_token(const float* logits, int64_t vocab_size, double normalizer, int32_t id,
                       int64_t num_alternatives) {
  TokenScore score{.id = id,
                   .log_probability = logits[id] - normalizer,
                   .is_greedy = logits[id] >= *std::max_element(logits, logits + vocab_size),
                   .alternatives = {}};
  if (num_alternatives > 0) score.alternatives = likeliest(logits, vocab_size, normalizer, num_alternatives);
  return score;
}

}  // namespace espalier::infer
