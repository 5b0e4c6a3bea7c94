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

#include "data/document_sizes.h"
#include "data/index_array.h"
#include "data/sample_order.h"
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

// How often the documents are read.
struct EpochPlan {
  int64_t tokens_per_epoch = 0;
  int64_t num_epochs = 0;
  int64_t num_samples = 0;  // of all epochs: at least what was asked for
  bool separate_last_epoch = false;
  int64_t num_leading_samples = 0;  // shuffled together; the rest, of a separate last epoch, comes after them

  static EpochPlan make(int64_t tokens_per_epoch, int64_t sequence_length, int64_t num_samples);
};

class SampleIndex final : public SampleOrder {
 public:
  // Throws a UserError with the numbers when the documents hold no token. `sizes` (tokens of each document of the
  // file) must outlive the index. Shows progress.
  static SampleIndex build(const DocumentSizes& sizes, const SampleRequest& request);

  int64_t size() const override { return plan_.num_samples; }
  int64_t num_epochs() const override { return plan_.num_epochs; }
  int64_t tokens_per_epoch() const override { return plan_.tokens_per_epoch; }
  const EpochPlan& plan() const { return plan_; }

  // The lengths of the pieces sum to sequence length + 1.
  void spans(int64_t sample, std::vector<DocumentSpan>& spans) const override;

  // One pass over documents() and, where there is something to find, one over order(): about a second for 10^9 of
  // their entries. Nothing but the sizes of these documents is looked up beside.
  std::vector<Sighting> sightings(const DocumentRange& documents) const override;

  std::vector<const IndexArray*> arrays() const override { return {&documents_, &starts_, &order_}; }

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

  DocumentSizes sizes_;
  EpochPlan plan_;
  IndexArray documents_, starts_, order_;
};

}  // namespace espalier::data
