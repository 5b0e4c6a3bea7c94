// Which entry of a learned table a distance takes: the relative positions of T5 (Raffel et al. 2020).
//
// Half of the buckets are one distance each, from 0 on; the other half grow with the logarithm of the distance up to
// max_distance, and the last one has all that is farther. Bidirectional: of each direction half of all buckets, keys
// after their query the upper half. Otherwise keys after their query, which causality hides, count as distance 0.
#pragma once

#include <cstdint>
#include <vector>

namespace espalier::spec {

struct RelativePositions {
  int64_t num_buckets = 32, max_distance = 128;
  bool bidirectional = true;

  int64_t buckets_of_direction() const { return bidirectional ? num_buckets / 2 : num_buckets; }
  // Distances from 0 on that have a bucket of their own. At least 1, and less than max_distance, or there are no
  // buckets.
  int64_t exact_distances() const { return buckets_of_direction() / 2; }
};

// Of the distances key - query from -(length - 1) to length - 1, in order. In fp32, as transformers computes them:
// where a distance is on the border of two buckets its rounding decides.
std::vector<int64_t> relative_buckets(const RelativePositions& positions, int64_t length);

}  // namespace espalier::spec
