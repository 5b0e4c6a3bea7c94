#include "retrieval/ngram_embedder.h"

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "base/hash.h"

namespace espalier::retrieval {
namespace {

constexpr size_t kLongestRun = 3;

}  // namespace

std::string NgramEmbedder::name() const { return concat("ngrams-", dimension_); }

void NgramEmbedder::embed(std::span<const int64_t> ids, float* vector) const {
  const auto dimension = static_cast<size_t>(dimension_);
  std::fill_n(vector, dimension, 0.0f);
  for (size_t first = 0; first < ids.size(); ++first) {
    uint32_t run[kLongestRun];
    for (size_t length = 1; length <= kLongestRun && first + length <= ids.size(); ++length) {
      run[length - 1] = static_cast<uint32_t>(ids[first + length - 1]);
      const uint64_t hash = hash64(run, length * sizeof(uint32_t));
      vector[hash % dimension] += hash >> 63 == 0 ? 1.0f : -1.0f;
    }
  }
  double squares = 0;
  for (size_t at = 0; at < dimension; ++at) squares += std::abs(vector[at]);  // of the roots
  if (squares == 0) return;
  for (size_t at = 0; at < dimension; ++at)
    vector[at] = static_cast<float>(
        std::copysign(std::sqrt(std::abs(static_cast<double>(vector[at])) / squares), static_cast<double>(vector[at])));
}

}  // namespace espalier::retrieval
