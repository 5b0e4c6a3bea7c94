// How long something usually goes without a sign of progress: counts of stretches by length.
//
// Lives in memory shared between a writer and readers in other processes (base/whereabouts.h); all of it starts as zero
// bytes.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

namespace espalier {

struct StretchSummary {
  int64_t num = 0;
  double percentile_99 = 0, longest = 0;  // seconds; the former rounded up to a power of two of microseconds
};

class Stretches {
 public:
  void add(int64_t length_ns) {
    const auto microseconds = static_cast<uint64_t>(length_ns) / 1000;
    const int bucket = std::min(kNumBuckets - 1, static_cast<int>(std::bit_width(microseconds)));
    count_[bucket].fetch_add(1, std::memory_order_relaxed);
    if (length_ns > longest_ns_.load(std::memory_order_relaxed))
      longest_ns_.store(length_ns, std::memory_order_relaxed);
  }

  StretchSummary summary() const {
    StretchSummary summary;
    summary.longest = static_cast<double>(longest_ns_) / 1e9;
    for (const auto& count : count_) summary.num += count;
    int64_t longer = 0;
    for (int bucket = kNumBuckets - 1; bucket >= 0; --bucket) {
      longer += count_[bucket];
      if (longer * 100 < summary.num || longer == 0) continue;
      summary.percentile_99 = static_cast<double>(uint64_t{1} << bucket) / 1e6;  // the bucket's upper end
      break;
    }
    return summary;
  }

 private:
  static constexpr int kNumBuckets = 48;  // stretches of at least 2^i microseconds
  std::atomic<uint32_t> count_[kNumBuckets];
  std::atomic<int64_t> longest_ns_;
};

}  // namespace espalier
