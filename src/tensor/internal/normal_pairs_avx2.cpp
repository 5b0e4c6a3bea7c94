#include "tensor/internal/normal_pairs_loops.h"

namespace espalier::tensor::internal::avx2 {

void normal_pairs(PhiloxKey key, double standard_deviation, uint64_t first_pair, float* values) {
  fill_pairs(key, standard_deviation, first_pair, values);
}

}  // namespace espalier::tensor::internal::avx2
