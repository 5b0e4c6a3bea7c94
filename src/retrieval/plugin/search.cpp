// The exact search, and the table of what the plugin offers.
#include <faiss/Index.h>
#include <faiss/utils/Heap.h>
#include <faiss/utils/distances.h>
#include <omp.h>

#include <cstdio>
#include <exception>

#include "retrieval/plugin/trained.h"
#include "retrieval/search_table.h"

namespace espalier::retrieval {
namespace {

#define ESPALIER_TEXT_OF(number) #number
#define ESPALIER_VERSION_OF(major, minor, patch) \
  ESPALIER_TEXT_OF(major) "." ESPALIER_TEXT_OF(minor) "." ESPALIER_TEXT_OF(patch)

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
  static const espalier::retrieval::SearchTable table = [] {
    espalier::retrieval::SearchTable all;
    all.faiss_version = ESPALIER_VERSION_OF(FAISS_VERSION_MAJOR, FAISS_VERSION_MINOR, FAISS_VERSION_PATCH);
    all.find_neighbours = espalier::retrieval::find_neighbours;
    espalier::retrieval::add_trained(all);
    return all;
  }();
  return &table;
}
