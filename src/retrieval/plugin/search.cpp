// The only unit that sees Faiss.
#include <faiss/utils/Heap.h>
#include <faiss/utils/distances.h>
#include <omp.h>

#include <cstdio>
#include <exception>

#include "retrieval/search_table.h"

namespace espalier::retrieval {
namespace {

bool find_neighbours(const Neighbours& work, char* error, size_t error_bytes) {
  try {
    omp_set_num_threads(work.threads);
    faiss::float_minheap_array_t heaps = {static_cast<size_t>(work.num_queries), static_cast<size_t>(work.count),
                                          work.numbers, work.scores};
    faiss::knn_inner_product(work.queries, work.rows, static_cast<size_t>(work.dimension),
                             static_cast<size_t>(work.num_queries), static_cast<size_t>(work.num_rows), &heaps);
    return true;
  } catch (const std::exception& failure) {
    std::snprintf(error, error_bytes, "%s", failure.what());
    return false;
  }
}

}  // namespace
}  // namespace espalier::retrieval

extern "C" __attribute__((visibility("default"))) const espalier::retrieval::SearchTable* espalier_search_table() {
  static const espalier::retrieval::SearchTable table = {espalier::retrieval::kSearchInterface,
                                                         espalier::retrieval::find_neighbours};
  return &table;
}
