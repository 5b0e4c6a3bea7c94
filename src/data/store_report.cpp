#include "data/store_report.h"

#include <algorithm>
#include <array>
#include <bit>

namespace espalier::data {

namespace {

// Sizes are int32: bucket b holds those of b significant bits.
constexpr size_t kNumBuckets = 33;
size_t bucket_of(int64_t size) { return static_cast<size_t>(std::bit_width(static_cast<uint32_t>(size))); }

}  // namespace

SizeSummary summarize_sizes(const TokenStore& store) {
  std::array<int64_t, kNumBuckets> counts{};
  SizeSummary summary;
  for (int64_t sequence = 0; sequence < store.num_sequences(); ++sequence) {
    const int64_t size = store.size(sequence);
    summary.smallest = sequence == 0 ? size : std::min(summary.smallest, size);
    summary.largest = std::max(summary.largest, size);
    ++counts[bucket_of(size)];
  }
  if (store.num_sequences() == 0) return summary;
  summary.mean = static_cast<double>(store.num_tokens()) / static_cast<double>(store.num_sequences());
  for (size_t bucket = bucket_of(summary.smallest); bucket <= bucket_of(summary.largest); ++bucket) {
    const int64_t from = bucket == 0 ? 0 : int64_t{1} << (bucket - 1);
    summary.histogram.push_back({from, bucket == 0 ? 0 : 2 * from - 1, counts[bucket]});
  }
  return summary;
}

std::optional<int64_t> common_last_id(const TokenStore& store, int64_t limit) {
  std::optional<int64_t> common;
  for (int64_t sequence = 0; sequence < std::min(limit, store.num_sequences()); ++sequence) {
    const int64_t size = store.size(sequence);
    if (size == 0) return std::nullopt;
    int64_t last;
    store.read(sequence, size - 1, 1, &last);
    if (common && *common != last) return std::nullopt;
    common = last;
  }
  return common;
}

}  // namespace espalier::data
