// The order in which the samples of one token file are read: Megatron-DeepSpeed's, to the bit.
//
// A pure function of (document sizes, range of documents, sequence length, samples asked for, seed): every rank and
// every machine computes the same order, so a run resumes by sample number alone. The documents of all epochs are
// shuffled and joined into one row of tokens, which is cut into samples of sequence length + 1 tokens; neighbours
// share one token, because a token is the label of one sample and the first input of the next. Then the samples are
// shuffled. Where the last epoch would be read to less than 95 % it is shuffled apart, and its samples come last.
//
// Two differences from upstream, where it stops with an assertion: a last epoch of one sample more than an epoch
// holds on its own is legal (the arrays are what it would build without the assertion), and positions have 64 bits.
//
//   const SampleIndex index = SampleIndex::build(store.sizes(), {.documents = {0, 949}, .sequence_length = 2048,
//                                                                .num_samples = 5000, .seed = 1234, .name = "train"});
//   index.spans(17, spans);   // the pieces of documents that make sample 17
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/progress.h"
#include "data/document_sizes.h"
#include "data/index_array.h"
#include "data/splits.h"

namespace espalier::data {

// What decides the order.
struct SampleRequest {
  DocumentRange documents;
  int64_t sequence_length = 0;
  int64_t num_samples = 0;  // at least this many; 0 gives one epoch anyway
  uint32_t seed = 0;
  std::string name;  // for people only: "train of data/wiki"
};

// A piece of a document: tokens offset to offset + length - 1.
struct DocumentSpan {
  int64_t document = 0;
  int64_t offset = 0;
  int64_t length = 0;
  bool operator==(const DocumentSpan&) const = default;
};

// A piece of a document in a sample, and the place in the sample at which it begins.
struct Sighting {
  int64_t sample = 0;
  int64_t at = 0;
  DocumentSpan span;
  bool operator==(const Sighting&) const = default;
};

// How often the documents are read.
struct EpochPlan {
  int64_t tokens_per_epoch = 0;
  int64_t num_epochs = 0;
  int64_t num_samples = 0;  // of all epochs: at least what was asked for
  bool separate_last_epoch = false;
  int64_t num_leading_samples = 0;  // shuffled together; the rest, of a separate last epoch, comes after them

  static EpochPlan make(int64_t tokens_per_epoch, int64_t sequence_length, int64_t num_samples);
};

class SampleIndex {
 public:
  // Throws a UserError with the numbers when the documents hold no token. `sizes` (tokens of each document of the
  // file) must outlive the index. Shows progress.
  static SampleIndex build(const DocumentSizes& sizes, const SampleRequest& request);

  int64_t size() const { return plan_.num_samples; }
  const EpochPlan& plan() const { return plan_; }

  // Replaces `spans` by the pieces of sample `sample`, in order, none of them empty; their lengths sum to sequence
  // length + 1.
  void spans(int64_t sample, std::vector<DocumentSpan>& spans) const;

  // The other way round: all pieces of these documents in all samples, in the order of the samples; spans() of these
  // samples gives each of them. One pass over documents() and, where there is something to find, one over order():
  // about a second for 10^9 of their entries. Apart from that only the sizes of these documents are looked up.
  std::vector<Sighting> sightings(const DocumentRange& documents) const;

  // Upstream's three arrays: documents in the order read, where each sample starts (row: position in documents,
  // offset in that document; one row more than samples), and the order of the samples.
  const IndexArray& documents() const { return documents_; }
  const IndexArray& starts() const { return starts_; }
  const IndexArray& order() const { return order_; }

 private:
  friend class SampleIndexCache;  // data/sample_index_cache.h

  // The arrays of the right types and shapes, values not set.
  SampleIndex(const DocumentSizes& sizes, const SampleRequest& request);

  void fill(const SampleRequest& request);
  void add_sightings(int64_t position, std::vector<Sighting>& found) const;
  void renumber(std::vector<Sighting>& found) const;
  void fill_starts(int64_t sequence_length, Progress& progress);

  DocumentSizes sizes_;
  EpochPlan plan_;
  IndexArray documents_, starts_, order_;
};

}  // namespace espalier::data
