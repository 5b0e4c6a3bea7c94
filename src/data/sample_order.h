// The samples of one token file, in the order in which they are read: which pieces of documents make each of them.
//
// Running text cut every L tokens is a SampleIndex, Megatron's order; documents that stay whole are a BestFitIndex.
// Either is a pure function of the documents' sizes, a seed and a few numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/index_array.h"
#include "data/splits.h"

namespace espalier::data {

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

class SampleOrder {
 public:
  virtual ~SampleOrder() = default;

  virtual int64_t size() const = 0;  // samples
  virtual int64_t num_epochs() const = 0;
  virtual int64_t tokens_per_epoch() const = 0;

  // Replaces `spans` by the pieces of sample `sample`, in order, none of them empty; at most sequence length + 1
  // tokens.
  virtual void spans(int64_t sample, std::vector<DocumentSpan>& spans) const = 0;

  // The other way round: all pieces of these documents in all samples, in the order of the samples; spans() of these
  // samples gives each of them. One pass over the arrays and no look at the tokens.
  virtual std::vector<Sighting> sightings(const DocumentRange& documents) const = 0;

  // All that it holds, for a fingerprint.
  virtual std::vector<const IndexArray*> arrays() const = 0;
};

// Orders of one source that are read one after another, as one. What is appended moves nothing that comes before it.
class OrderChain {
 public:
  void append(std::shared_ptr<const SampleOrder> order);

  int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  int64_t num_epochs() const;
  double epochs_of(int64_t num_samples) const;  // that this many samples amount to
  int64_t tokens_per_epoch() const { return orders_.front()->tokens_per_epoch(); }
  void spans(int64_t sample, std::vector<DocumentSpan>& spans) const;
  std::vector<Sighting> sightings(const DocumentRange& documents) const;
  const std::vector<std::shared_ptr<const SampleOrder>>& orders() const { return orders_; }

 private:
  std::vector<std::shared_ptr<const SampleOrder>> orders_;
  std::vector<int64_t> ends_;  // of each, counted from the first sample of all
};

}  // namespace espalier::data
