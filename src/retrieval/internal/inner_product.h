// The inner product by which rows are ranked, and the order of equal ones.
#pragma once

#include <cstdint>

#include "retrieval/search.h"

namespace espalier::retrieval::internal {

// Summed in double precision, number after number: the same everywhere.
inline double inner_product(const float* a, const float* b, int64_t dimension) {
  double sum = 0;
  for (int64_t number = 0; number < dimension; ++number) sum += static_cast<double>(a[number]) * b[number];
  return sum;
}

inline bool better(const Hit& a, const Hit& b) { return a.score != b.score ? a.score > b.score : a.id < b.id; }

}  // namespace espalier::retrieval::internal
