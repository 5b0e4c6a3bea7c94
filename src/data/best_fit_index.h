// Samples of whole documents (--packing best-fit): every document that fits into a sample is in one, whole, along with
// others that fill the rest.
//
// One epoch, shuffled. A sample has room for sequence length + 1 tokens. Documents are taken in shuffled order, 16,384
// at a time. One that is longer than a sample fills as many of its own as it can, which overlap by one token as those
// of running text do, so that each token is a label once; its rest is packed like a document. What is to be packed
// goes, from the longest to the shortest, into the sample whose room it leaves least of, or into a new one. Where more
// than half a percent of the room would stay empty, samples that hold rests alone are given up again, the emptiest
// first, and their rests, which are cut anyway, are divided over the gaps of others. At the end the samples are
// shuffled.
//
// A pure function of (document sizes, range of documents, sequence length, seed): a run goes on from a sample's number.
// The next epoch is another index, with the next seed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/document_sizes.h"
#include "data/sample_order.h"

namespace espalier::data {

struct BestFitRequest {
  DocumentRange documents;
  int64_t sequence_length = 0;
  uint32_t seed = 0;
  std::string name;  // for people only
};

class BestFitIndex final : public SampleOrder {
 public:
  // Throws a UserError where the documents hold no token. `sizes` must outlive the index. Shows progress. With a
  // folder the arrays are kept in it, as those of data/sample_index_cache.h are.
  static BestFitIndex build(const DocumentSizes& sizes, const BestFitRequest& request,
                            const std::filesystem::path& cache_folder = {});

  int64_t size() const override { return rows_.rows() - 1; }
  int64_t num_epochs() const override { return 1; }
  int64_t tokens_per_epoch() const override { return tokens_per_epoch_; }
  void spans(int64_t sample, std::vector<DocumentSpan>& spans) const override;
  std::vector<Sighting> sightings(const DocumentRange& documents) const override;
  std::vector<const IndexArray*> arrays() const override { return {&pieces_, &rows_}; }

  // Places of all samples that no document fills, as a share of all places.
  double padding() const;

 private:
  BestFitIndex() = default;
  void fill(const DocumentSizes& sizes, const BestFitRequest& request);

  int64_t tokens_per_epoch_ = 0, sequence_length_ = 0;
  IndexArray pieces_;  // document, offset, length
  IndexArray rows_;    // of each sample its first piece, then their number
};

}  // namespace espalier::data
