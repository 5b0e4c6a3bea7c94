// Where each sample of a row of documents begins, found by several threads at once.
#pragma once

#include <cstdint>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "data/document_sizes.h"
#include "data/index_array.h"
#include "data/splits.h"

namespace espalier::data::internal {

// A row of documents, all of them of `range`, cut into samples.
struct SampleRow {
  const DocumentSizes& sizes;
  DocumentRange range;
  const IndexArray& documents;
  int64_t sequence_length = 0;
};

// Sample s begins at token s * sequence_length of the row: row s of `starts` is the position in `documents` of the
// document that holds it, and its place in there; sample 0 begins at 0, 0. As many as `starts` has rows; the documents
// hold them all. A null pool: this thread does it. `progress` advances by one a document.
void find_sample_starts(const SampleRow& row, IndexArray& starts, ThreadPool* pool, Progress& progress);

}  // namespace espalier::data::internal
