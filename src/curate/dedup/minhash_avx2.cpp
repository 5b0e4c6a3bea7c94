#include "curate/dedup/internal/minhash_loops.h"

namespace espalier::curate::internal {

void minhash_windows_avx2(const WindowHash* windows, size_t count, const uint32_t* seeds, uint32_t* least,
                          size_t values) {
  MinHashLoops<32>::windows(windows, count, seeds, least, values);
}

void minhash_shingles_avx2(const uint64_t* shingles, size_t count, const uint64_t* masks, uint64_t* least,
                           size_t values) {
  MinHashLoops<32>::shingles(shingles, count, masks, least, values);
}

}  // namespace espalier::curate::internal
