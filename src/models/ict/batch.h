// Queries and contexts to a Batch: rows of all queries of the micro-batch first, then those of the contexts that answer
// them in the same order, then all others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/data.h"
#include "tensor/batch.h"

namespace espalier::models {

// Padded; `used` tokens count. One without tokens is no text: as a context it does not compete.
struct EncodedText {
  std::span<const int64_t> ids;
  int64_t used = 0;
};

// In Batch::extra, where contexts may be missing: [contexts] float32, 1 or 0.
inline constexpr const char* kContextsThere = "contexts_there";

struct RetrievalRow {
  int64_t sample_number = 0;
  EncodedText query;
  std::vector<EncodedText> contexts;  // the one that answers it first; as many in every row
  int64_t label = 0;                  // of the sample in its file, for the hash of samples
  float weight = 1;                   // 0: a query that only fills up the batch
};

// Batch::targets: "loss". Batch::extra: kLastKeys, kTokenTypes (all 0), and kSampleWeights [queries], which says how
// many of the rows are queries.
// With `may_lack_contexts` also kContextsThere.
tensor::Batch make_retrieval_batch(const std::vector<RetrievalRow>& rows, bool may_lack_contexts = false);

// Of samples of data::IctDataset.
tensor::Batch make_ict_batch(const std::vector<SampleRow>& rows);

}  // namespace espalier::models
