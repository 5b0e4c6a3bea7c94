// An order of samples that is computed where it is asked for: nothing is built or kept, however many tokens there are.
//
// The documents lie in the order of the file, a row of tokens that is cut every sequence length, neighbours sharing one
// token as in data/sample_index.h; in each epoch the samples are permuted by a Feistel network over their numbers (the
// permutation of Luby and Rackoff, "How to construct pseudorandom permutations from pseudorandom functions", 1988, with
// the numbers that lie beyond the last sample walked over), keyed by seed and epoch. What the cut leaves over, less
// than a sample, is a different part of the row in each epoch. In contrast to Megatron's order documents are not
// shuffled before they are cut, so that neighbours in the file are neighbours in a sample, and no sample reaches into
// another epoch.
//
// Sample numbers mean the same whatever the number of samples asked for.
#pragma once

#include <cstdint>
#include <vector>

#include "data/sample_index.h"
#include "data/sample_order.h"
#include "data/token_index.h"

namespace espalier::data {

// A permutation of the numbers 0 to size - 1.
class KeyedPermutation {
 public:
  KeyedPermutation(int64_t size, uint64_t key);
  int64_t at(int64_t number) const;
  int64_t number_of(int64_t image) const;  // at()'s inverse

 private:
  static constexpr int kRounds = 6;
  uint64_t permute(uint64_t value) const;
  uint64_t permute_back(uint64_t value) const;

  uint64_t size_ = 0;
  int half_bits_ = 0;
  uint64_t mask_ = 0, keys_[kRounds] = {};
};

class ImplicitOrder final : public SampleOrder {
 public:
  // `index` must outlive the order, which holds whole epochs. A UserError where the documents hold no sample.
  ImplicitOrder(const TokenIndex& index, const SampleRequest& request);

  int64_t size() const override { return num_epochs_ * samples_per_epoch_; }
  int64_t num_epochs() const override { return num_epochs_; }
  int64_t tokens_per_epoch() const override { return num_tokens_; }
  void spans(int64_t sample, std::vector<DocumentSpan>& spans) const override;
  std::vector<Sighting> sightings(const DocumentRange& documents) const override;
  std::vector<const IndexArray*> arrays() const override { return {}; }

 private:
  KeyedPermutation permutation_of(int64_t epoch) const;
  int64_t skipped_tokens(int64_t epoch) const;  // at the beginning of the row
  int64_t start_of(int64_t document) const;     // in tokens from the beginning of the row
  int64_t document_at(int64_t token) const;

  const TokenIndex& index_;
  DocumentRange documents_;
  int64_t sequence_length_ = 0;
  uint32_t seed_ = 0;
  int64_t num_tokens_ = 0, samples_per_epoch_ = 0, num_epochs_ = 0;
};

}  // namespace espalier::data
