// What libespalier_search.so offers: plain data and functions without exceptions, so that nothing of Faiss crosses.
#pragma once

#include <cstddef>
#include <cstdint>

namespace espalier::retrieval {

inline constexpr int64_t kSearchInterface = 1;  // raised with every change of this file

struct Neighbours {
  const float* queries = nullptr;  // [num_queries, dimension]
  int64_t num_queries = 0;
  const float* rows = nullptr;  // [num_rows, dimension]
  int64_t num_rows = 0, dimension = 0;
  int64_t count = 0;  // of rows wanted for each query, at most num_rows
  int threads = 1;
  float* scores = nullptr;     // [num_queries, count]: inner products in fp32, the greatest first
  int64_t* numbers = nullptr;  // [num_queries, count]: of the rows; -1 where there was none
};

struct SearchTable {
  int64_t interface_version = kSearchInterface;
  // False where it failed: then `error` holds why, cut to its size.
  bool (*find_neighbours)(const Neighbours& work, char* error, size_t error_bytes) = nullptr;
};

}  // namespace espalier::retrieval
