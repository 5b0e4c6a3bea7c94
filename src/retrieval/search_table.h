// What libespalier_search.so offers: plain data and functions without exceptions, so that nothing of Faiss crosses.
// Functions that return bool: false where they failed; then `error` holds why, cut to its size.
#pragma once

#include <cstddef>
#include <cstdint>

namespace espalier::retrieval {

inline constexpr int64_t kSearchInterface = 3;  // raised with every change of this file

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

// Of an index string, such as IVF4096_HNSW4,Flat.
struct IndexShape {
  int64_t num_lists = 0;      // of inverted lists; 0: every code is compared
  int64_t num_centroids = 0;  // of the largest k-means, which needs a training row for each
  int64_t code_bytes = 0;     // of a row, the number of its list included
  bool is_lossless = false;   // a code holds the row's numbers
};

// A trained index; its rows are numbered from 0 on.
struct FaissIndex;

struct IndexTraining {
  const char* index_string = "";
  const float* rows = nullptr;  // [num_rows, dimension]
  int64_t num_rows = 0, dimension = 0;
  int threads = 1;
  void (*report)(void* context, double share) = nullptr;  // called with what share is done, up to 1
  void* context = nullptr;
};

// Where the bytes of an index go, in order. `take` returns false where it cannot: the rest is not written then.
struct ByteSink {
  bool (*take)(void* context, const void* bytes, size_t count) = nullptr;
  void* context = nullptr;
};

struct SearchTable {
  int64_t interface_version = kSearchInterface;
  const char* faiss_version = "";
  bool (*find_neighbours)(const Neighbours& work, char* error, size_t error_bytes) = nullptr;

  // Below, what is computed does not depend on the number of threads.
  bool (*describe)(const char* index_string, int64_t dimension, IndexShape& shape, char* error,
                   size_t error_bytes) = nullptr;
  // A trained index without rows.
  bool (*train)(const IndexTraining& training, FaissIndex** index, char* error, size_t error_bytes) = nullptr;
  // `maps`: inverted lists stay in the file, which is mapped; nothing can be appended then.
  bool (*open)(const char* path, bool maps, FaissIndex** index, char* error, size_t error_bytes) = nullptr;
  bool (*write)(const FaissIndex& index, const ByteSink& sink, char* error, size_t error_bytes) = nullptr;
  void (*shape)(const FaissIndex& index, IndexShape& shape, int64_t& num_rows) = nullptr;
  // [num_rows, code_bytes]
  bool (*encode)(const FaissIndex& index, const float* rows, int64_t num_rows, int threads, uint8_t* codes, char* error,
                 size_t error_bytes) = nullptr;
  bool (*append)(FaissIndex& index, const uint8_t* codes, int64_t num_rows, char* error, size_t error_bytes) = nullptr;
  // Lists that are read for a query, and the breadth of the search among an HNSW of lists; without effect where the
  // index has none.
  void (*set_probes)(FaissIndex& index, int64_t nprobe, int64_t ef_search) = nullptr;
  // Numbers of rows for each query, [num_queries, count]; -1 where there was none. In no order that means anything.
  bool (*search)(const FaissIndex& index, const float* queries, int64_t num_queries, int64_t count, int threads,
                 int64_t* numbers, char* error, size_t error_bytes) = nullptr;
  void (*close)(FaissIndex* index) = nullptr;
};

}  // namespace espalier::retrieval
