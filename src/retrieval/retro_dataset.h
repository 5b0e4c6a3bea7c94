// The samples of Retro: those of GPT in GPT's order, each with the neighbours of its chunks.
//
//   const RetroDataSets sets = RetroDataSets::open(options, {.workdir = "work", .num_neighbors = 2, ...});
//   sets.train->read(17, sample);
//
// Arrays: `text`, sequence length + 1 ids; `neighbor_tokens` [chunks, neighbours, retrieved length], each neighbour a
// chunk of the database and what follows it in its document, padded with the token that ends documents; and
// `neighbor_counts` [chunks], the number of neighbours that exist: they come first, the rest is padding.
//
// Upstream lets a neighbour run on into the next document of the database, which may be the sample's own, and takes the
// last chunk of all where a neighbour is missing. Here a neighbour ends with its document, and nothing takes the place
// of a missing one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/data_plan.h"
#include "data/gpt_dataset.h"
#include "retrieval/chunk_database.h"
#include "retrieval/neighbors.h"

namespace espalier::retrieval {

struct RetroSampleOptions {
  std::filesystem::path workdir;
  int64_t num_neighbors = 2, num_retrieved_chunks = 2;
};

class RetroDataset final : public data::SampleSource {
 public:
  enum Field : size_t { kText, kNeighborTokens, kNeighborCounts };

  // UserErrors: neighbours of other samples, of other chunks, or too few.
  RetroDataset(std::unique_ptr<const data::GptDataset> samples, std::shared_ptr<const ChunkDatabase> chunks,
               const std::string& kind, const RetroSampleOptions& options);

  const std::string& name() const override { return samples_->name(); }
  int64_t size() const override { return samples_->size(); }
  const std::vector<data::SampleField>& fields() const override { return fields_; }
  void read(int64_t number, data::Sample& sample) const override;
  const std::vector<std::string>& source_names() const override { return samples_->source_names(); }
  std::string description() const override;
  std::vector<std::string> prefixes() const override { return samples_->prefixes(); }
  void probe_ids(int64_t vocab_size) const override { samples_->probe_ids(vocab_size); }
  // Names the neighbours as part of how the set is read.
  data::OrderFingerprint fingerprint(const std::string& reading) const override;
  std::vector<data::SamplePiece> pieces(int64_t number) const override { return samples_->pieces(number); }

 private:
  std::unique_ptr<const data::GptDataset> samples_;
  std::shared_ptr<const ChunkDatabase> chunks_;
  NeighborFile neighbors_;
  RetroSampleOptions options_;
  std::vector<data::SampleField> fields_;
};

struct RetroDataSets {
  std::unique_ptr<const RetroDataset> train;
  std::vector<std::unique_ptr<const RetroDataset>> valid, test;

  static RetroDataSets open(const data::DataSetOptions& data, const RetroSampleOptions& options);
};

}  // namespace espalier::retrieval
