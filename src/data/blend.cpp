#include "data/blend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/format.h"
#include "base/progress.h"

namespace espalier::data {
namespace {

constexpr double kSurplus = 1.005;

}  // namespace

double numpy_sum(std::span<const double> values) {
  constexpr size_t kLanes = 8, kUnsplit = 128;
  const size_t count = values.size();
  if (count < kLanes) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum;
  }
  if (count > kUnsplit) {
    const size_t half = count / 2 - count / 2 % kLanes;
    return numpy_sum(values.first(half)) + numpy_sum(values.subspan(half));
  }
  double lanes[kLanes];
  const size_t whole = count - count % kLanes;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    lanes[lane] = values[lane];
    for (size_t at = kLanes + lane; at < whole; at += kLanes) lanes[lane] += values[at];
  }
  double sum = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  for (size_t at = whole; at < count; ++at) sum += values[at];
  return sum;
}

std::vector<double> normalized_weights(std::span<const double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> result(weights.begin(), weights.end());
  for (double& weight : result) weight /= sum;
  return result;
}

std::vector<int64_t> samples_per_set(std::span<const double> weights, int64_t num_samples) {
  std::vector<int64_t> counts;
  for (const double weight : weights)
    counts.push_back(static_cast<int64_t>(std::ceil(static_cast<double>(num_samples) * weight * kSurplus)));
  return counts;
}

BlendIndex BlendIndex::build(std::span<const double> weights, std::span<const int64_t> lengths) {
  return BlendIndex(weights, lengths, std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
}

BlendIndex BlendIndex::of_size(std::span<const double> weights, int64_t size) {
  return BlendIndex(weights, std::vector<int64_t>(weights.size(), size), size);
}

BlendIndex::BlendIndex(std::span<const double> weights, std::span<const int64_t> lengths, int64_t size) {
  ESPALIER_CHECK(!weights.empty() && weights.size() == lengths.size());
  ESPALIER_CHECK(weights.size() <= std::numeric_limits<uint16_t>::max());
  const double sum = numpy_sum(weights);
  std::vector<double> shares(weights.begin(), weights.end());
  for (double& share : shares) share /= sum;
  const size_t num_sets = shares.size();

  num_sets_ = static_cast<int64_t>(num_sets);
  sets_.reserve(static_cast<size_t>(size));
  std::vector<double> counts(num_sets, 0.0);  // whole numbers, exact in doubles to 2^53
  Progress progress(concat("blend ", num_sets, " data sets"), size, Progress::Unit::kItems, "samples");
  for (int64_t sample = 0; sample < size; ++sample) {
    if (sample % kBlock == 0) {
      for (const double count : counts) counts_at_block_.push_back(static_cast<int64_t>(count));
      progress.advance(sample == 0 ? 0 : kBlock);
    }
    const auto so_far = std::max(static_cast<double>(sample), 1.0);
    size_t furthest_behind = 0;
    double largest = shares[0] * so_far - counts[0];
    for (size_t set = 1; set < num_sets; ++set) {
      const double behind = shares[set] * so_far - counts[set];
      furthest_behind = behind > largest ? set : furthest_behind;
      largest = behind > largest ? behind : largest;
    }
    if (counts[furthest_behind] >= static_cast<double>(lengths[furthest_behind])) break;
    counts[furthest_behind] += 1;
    sets_.push_back(static_cast<uint16_t>(furthest_behind));
  }
  progress.finish();
}

int64_t BlendIndex::count(int64_t set) const { return size() == 0 ? 0 : count_before(size(), set); }

BlendIndex::Place BlendIndex::place(int64_t sample) const {
  ESPALIER_CHECK(sample >= 0 && sample < size(), "sample ", sample, " of ", size());
  const uint16_t set = sets_[static_cast<size_t>(sample)];
  return {set, count_before(sample, set)};
}

int64_t BlendIndex::count_before(int64_t sample, int64_t set) const {
  const int64_t block = std::min(sample, size() - 1) / kBlock;
  const auto begin = sets_.begin() + block * kBlock;
  return counts_at_block_[static_cast<size_t>(block * num_sets_ + set)] +
         std::count(begin, sets_.begin() + sample, static_cast<uint16_t>(set));
}

// The last block that begins before it holds it, or none does.
std::optional<int64_t> BlendIndex::sample_at(const Place& place) const {
  ESPALIER_CHECK(place.set >= 0 && place.set < num_sets_ && place.sample >= 0, place.set, " ", place.sample);
  const auto before = [&](int64_t block) {
    return counts_at_block_[static_cast<size_t>(block * num_sets_ + place.set)];
  };
  int64_t block = 0, end = (size() + kBlock - 1) / kBlock;
  while (end - block > 1) {
    const int64_t middle = block + (end - block) / 2;
    (before(middle) <= place.sample ? block : end) = middle;
  }
  int64_t left = size() == 0 ? 0 : place.sample - before(block);
  for (int64_t sample = block * kBlock; sample < std::min((block + 1) * kBlock, size()); ++sample)
    if (sets_[static_cast<size_t>(sample)] == place.set && left-- == 0) return sample;
  return std::nullopt;
}

}  // namespace espalier::data
