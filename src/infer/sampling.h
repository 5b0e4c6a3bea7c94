// From logits to the next token.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace espalier::infer {

struct SamplingConfig {
  double temperature = 1.0;       // 0: greedy
  int64_t top_k = 0;              // 0: all; 1: greedy
  double top_p = 0;               // 0: off; else the smallest set of tokens whose probability reaches it
  double top_p_decay = 0;         // 0: off; else top_p is multiplied by it after each token of the text
  double top_p_bound = 0;         // what top_p does not fall below then
  double min_p = 0;               // 0: off; else tokens whose probability is at least this share of the largest
  double repetition_penalty = 1;  // of tokens of the prompt and the text: positive logits / it, others * it
  double frequency_penalty = 0;   // taken from a token's logit for each time that the text has it
  double presence_penalty = 0;    // taken once if the text has it
  std::vector<std::pair<int32_t, double>> logit_bias = {};  // added first
  uint64_t seed = 0;
};

struct SampledToken {
  int32_t id = 0;
  double log_probability = 0;  // under the unmodified distribution (no temperature, no filter)
};

bool is_greedy(const SamplingConfig& config);

// The ids that a text has had so far, for the penalties.
class TokenHistory {
 public:
  explicit TokenHistory(std::span<const int32_t> prompt);
  void add(int32_t id) { ++counts_[id]; }
  // Id to its number in the text; 0 for those that only the prompt has.
  const std::unordered_map<int32_t, int64_t>& counts() const { return counts_; }

 private:
  std::unordered_map<int32_t, int64_t> counts_;
};

// `logits` with bias, repetition, frequency and presence penalties, in this order, and without the ids of `banned`:
// itself where nothing is to be changed, else a copy in `storage`.
const float* adjusted_logits(const float* logits, int64_t vocab_size, const SamplingConfig& config,
                             const TokenHistory& history, std::span<const int32_t> banned, std::vector<float>& storage);

// log(sum(exp(logits))), of the ids in ascending order and in double: what log-probabilities are relative to.
double log_normalizer(const float* logits, int64_t vocab_size);

// The most likely id, the smaller one of equals.
int32_t greedy_token(const float* logits, int64_t vocab_size);

// `logits`: fp32 values; ids from `vocab_size` on (padding) are never chosen and have no probability. Filters as
// Megatron's: the temperature, then the top k (ties with the k-th are kept), then top p, the token that crosses p
// included; then min p. Draws from Philox with key (seed, "generate") and counter (row, position), so a prompt's text
// does not depend on the others of its batch. Bias and penalties are adjusted_logits' part.
int32_t draw_token(const float* logits, int64_t vocab_size, const SamplingConfig& config, int64_t row,
                   int64_t position);

// draw_token with the log-probability of what it chose.
SampledToken sample_token(const float* logits, int64_t vocab_size, const SamplingConfig& config, int64_t row,
                          int64_t position);

}  // namespace espalier::infer
