#include "infer/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tensor/rng.h"

namespace espalier::infer {
namespace {

double uniform(const SamplingConfig& config, int64_t row, int64_t position) {
  const tensor::PhiloxBlock bits =
      tensor::philox4x32(tensor::philox_key(config.seed, "generate"),
                         {{static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                           static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32)}});
  return static_cast<double>((uint64_t{bits.word[0]} << 21) | (bits.word[1] >> 11)) * 0x1p-53;
}

// What the top k leave, in no order that means anything (but always the same one).
std::vector<int32_t> keep_top_k(const float* logits, int64_t count, int64_t top_k) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  if (top_k <= 0 || top_k >= count) return ids;
  const auto likelier = [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
  std::nth_element(ids.begin(), ids.begin() + (top_k - 1), ids.end(), likelier);
  const float threshold = logits[ids[static_cast<size_t>(top_k - 1)]];
  ids.erase(std::remove_if(ids.begin(), ids.end(), [&](int32_t id) { return logits[id] < threshold; }), ids.end());
  return ids;
}

double top_p_at(const SamplingConfig& config, int64_t position) {
  if (config.top_p_decay <= 0) return config.top_p;
  const double decayed = config.top_p * std::pow(config.top_p_decay, static_cast<double>(position));
  return std::max({config.top_p_bound, decayed, std::numeric_limits<double>::min()});  // 0 would be off
}

// The most likely of ids[begin..] put in order after `begin`: where that ends. A few at first, as mostly few are
// wanted.
template <class Likelier>
size_t sort_more(std::vector<int32_t>& ids, size_t begin, const Likelier& likelier) {
  constexpr size_t kFirst = 128, kFactor = 8;
  const size_t end = std::min(ids.size(), std::max(kFirst, begin * kFactor));
  const auto at = [&](size_t place) { return ids.begin() + static_cast<std::ptrdiff_t>(place); };
  if (end < ids.size()) std::nth_element(at(begin), at(end), ids.end(), likelier);
  std::sort(at(begin), at(end), likelier);
  return end;
}

void keep_top_p(const float* logits, double top_p, double largest, double temperature, std::vector<int32_t>& ids) {
  if (top_p <= 0 || top_p >= 1) return;
  const auto likelier = [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
  const auto weight = [&](int32_t id) { return std::exp((logits[id] - largest) / temperature); };
  const double total =
      std::accumulate(ids.begin(), ids.end(), 0.0, [&](double sum, int32_t id) { return sum + weight(id); });
  double cumulative = 0;
  size_t kept = 0, num_sorted = 0;
  while (kept < ids.size() && cumulative <= top_p * total) {
    if (kept == num_sorted) num_sorted = sort_more(ids, num_sorted, likelier);
    cumulative += weight(ids[kept++]);
  }
  ids.resize(kept);
}

void keep_min_p(const float* logits, double largest, const SamplingConfig& config, std::vector<int32_t>& ids) {
  if (config.min_p <= 0) return;
  const auto is_unlikely = [&](int32_t id) {
    return std::exp((logits[id] - largest) / config.temperature) < config.min_p;
  };
  ids.erase(std::remove_if(ids.begin(), ids.end(), is_unlikely), ids.end());
}

bool changes_logits(const SamplingConfig& config) {
  return config.repetition_penalty != 1 || config.frequency_penalty != 0 || config.presence_penalty != 0 ||
         !config.logit_bias.empty();
}

float penalized(float logit, int64_t count, const SamplingConfig& config) {
  double value = logit;
  value = value > 0 ? value / config.repetition_penalty : value * config.repetition_penalty;
  if (count > 0) value -= config.frequency_penalty * static_cast<double>(count) + config.presence_penalty;
  return static_cast<float>(value);
}

}  // namespace

bool is_greedy(const SamplingConfig& config) { return config.temperature == 0 || config.top_k == 1; }

TokenHistory::TokenHistory(std::span<const int32_t> prompt) {
  for (const int32_t id : prompt) counts_.try_emplace(id, 0);
}

const float* adjusted_logits(const float* logits, int64_t vocab_size, const SamplingConfig& config,
                             const TokenHistory& history, std::span<const int32_t> banned,
                             std::vector<float>& storage) {
  if (!changes_logits(config) && banned.empty()) return logits;
  storage.assign(logits, logits + vocab_size);
  for (const auto& [id, bias] : config.logit_bias) {
    float& logit = storage[static_cast<size_t>(id)];
    logit = static_cast<float>(logit + bias);
  }
  for (const auto& [id, count] : history.counts()) {
    float& logit = storage[static_cast<size_t>(id)];
    logit = penalized(logit, count, config);
  }
  for (const int32_t id : banned) storage[static_cast<size_t>(id)] = -std::numeric_limits<float>::infinity();
  return storage.data();
}

double log_normalizer(const float* logits, int64_t vocab_size) {
  const double largest = *std::max_element(logits, logits + vocab_size);
  double sum = 0;
  for (int64_t id = 0; id < vocab_size; ++id) sum += std::exp(logits[id] - largest);
  return largest + std::log(sum);
}

int32_t greedy_token(const float* logits, int64_t vocab_size) {
  return static_cast<int32_t>(std::max_element(logits, logits + vocab_size) - logits);
}

int32_t draw_token(const float* logits, int64_t vocab_size, const SamplingConfig& config, int64_t row,
                   int64_t position) {
  const int32_t best = greedy_token(logits, vocab_size);
  if (is_greedy(config)) return best;
  const double largest = logits[best];
  std::vector<int32_t> ids = keep_top_k(logits, vocab_size, config.top_k);
  keep_top_p(logits, top_p_at(config, position), largest, config.temperature, ids);
  keep_min_p(logits, largest, config, ids);
  std::vector<double> cumulative;
  cumulative.reserve(ids.size());
  double sum = 0;
  for (const int32_t id : ids) cumulative.push_back(sum += std::exp((logits[id] - largest) / config.temperature));
  const double threshold = uniform(config, row, position) * sum;
  const size_t chosen = std::min<size_t>(
      ids.size() - 1,
      static_cast<size_t>(std::upper_bound(cumulative.begin(), cumulative.end(), threshold) - cumulative.begin()));
  return ids[chosen];
}

SampledToken sample_token(const float* logits, int64_t vocab_size, const SamplingConfig& config, int64_t row,
                          int64_t position) {
  const int32_t id = draw_token(logits, vocab_size, config, row, position);
  return {id, logits[id] - log_normalizer(logits, vocab_size)};
}

}  // namespace espalier::infer
