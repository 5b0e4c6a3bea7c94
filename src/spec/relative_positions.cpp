#include "spec/relative_positions.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace espalier::spec {
namespace {

// Of a distance in one direction.
int64_t bucket_of(const RelativePositions& positions, int64_t distance) {
  const int64_t exact = positions.exact_distances(), buckets = positions.buckets_of_direction();
  if (distance < exact) return distance;
  const float ratio = static_cast<float>(distance) / static_cast<float>(exact);
  const auto whole =
      static_cast<float>(std::log(static_cast<double>(positions.max_distance) / static_cast<double>(exact)));
  const float share = std::log(ratio) / whole;
  return std::min(exact + static_cast<int64_t>(share * static_cast<float>(buckets - exact)), buckets - 1);
}

}  // namespace

std::vector<int64_t> relative_buckets(const RelativePositions& positions, int64_t length) {
  ESPALIER_CHECK(positions.exact_distances() >= 1 && positions.max_distance > positions.exact_distances(),
                 positions.num_buckets, " buckets up to distance ", positions.max_distance);
  ESPALIER_CHECK(length >= 1, "distances of ", length, " positions");
  std::vector<int64_t> buckets;
  buckets.reserve(static_cast<size_t>(2 * length - 1));
  for (int64_t distance = 1 - length; distance < length; ++distance) {
    if (distance <= 0)
      buckets.push_back(bucket_of(positions, -distance));
    else if (positions.bidirectional)
      buckets.push_back(positions.buckets_of_direction() + bucket_of(positions, distance));
    else
      buckets.push_back(0);
  }
  return buckets;
}

}  // namespace espalier::spec
