#include "infer/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tensor/rng.h"

namespace espalier::infer {
namespace {

double log_sum_exp(const float* logits, int64_t count, double largest) {
  double sum = 0;
  for (int64_t id = 0; id < count; ++id) sum += std::exp(logits[id] - largest);
  return largest + std::log(sum);
}

double uniform(const SamplingConfig& config, int64_t row, int64_t position) {
  const tensor::PhiloxBlock bits =
      tensor::philox4x32(tensor::philox_key(config.seed, "generate"),
                         {{static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                           static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32)}});
  return static_cast<double>((uint64_t{bits.word[0]} << 21) | (bits.word[1] >> 11)) * 0x1p-53;
}

// Ids that the filters leave, most likely first when top_p needs the order.
std::vector<int32_t> candidates(const float* logits, int64_t count, const SamplingConfig& config) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
  if (config.top_k > 0 && config.top_k < count) {
    std::nth_element(ids.begin(), ids.begin() + (config.top_k - 1), ids.end(), likelier);
    const float threshold = logits[ids[static_cast<size_t>(config.top_k - 1)]];
    ids.erase(std::remove_if(ids.begin(), ids.end(), [&](int32_t id) { return logits[id] < threshold; }), ids.end());
  }
  if (config.top_p <= 0 || config.top_p >= 1) return ids;
  std::sort(ids.begin(), ids.end(), likelier);
  const double largest = logits[ids[0]];
  const auto weight = [&](int32_t id) { return std::exp((logits[id] - largest) / config.temperature); };
  const double total =
      std::accumulate(ids.begin(), ids.end(), 0.0, [&](double sum, int32_t id) { return sum + weight(id); });
  double cumulative = 0;
  size_t kept = 0;
  while (kept < ids.size() && cumulative <= config.top_p * total) cumulative += weight(ids[kept++]);
  ids.resize(kept);
  return ids;
}

}  // namespace

SampledToken sample_token(const float* logits, int64_t vocab_size, const SamplingConfig& config, int64_t row,
                          int64_t position) {
  const float* best = std::max_element(logits, logits + vocab_size);
  const double normalizer = log_sum_exp(logits, vocab_size, *best);
  if (config.top_k == 1) return {static_cast<int32_t>(best - logits), *best - normalizer};

  const std::vector<int32_t> ids = candidates(logits, vocab_size, config);
  std::vector<double> cumulative;
  double sum = 0;
  for (const int32_t id : ids) cumulative.push_back(sum += std::exp((logits[id] - *best) / config.temperature));
  const double threshold = uniform(config, row, position) * sum;
  const size_t chosen = std::min<size_t>(
      ids.size() - 1,
      static_cast<size_t>(std::upper_bound(cumulative.begin(), cumulative.end(), threshold) - cumulative.begin()));
  return {ids[chosen], logits[ids[chosen]] - normalizer};
}

}  // namespace espalier::infer
