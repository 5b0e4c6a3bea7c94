#include "retrieval/retro_dataset.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"

namespace espalier::retrieval {
namespace {

// Why the neighbours are not those of these samples; empty where they are.
std::string mismatch(const NeighborFile& neighbors, const data::GptDataset& samples, const ChunkDatabase& chunks,
                     const RetroSampleOptions& options) {
  if (neighbors.chunks() != hex64(chunks.checksum())) return "they refer to other chunks than those of chunks.json";
  if (neighbors.num_saved() < options.num_neighbors)
    return concat("each chunk has ", neighbors.num_saved(), " of them, but --retro-num-neighbors is ",
                  options.num_neighbors);
  const data::OrderFingerprint then = data::parse_order(neighbors.order());
  const std::vector<std::string> changes = data::order_changes(then, samples.fingerprint(then.reading));
  if (!changes.empty()) return join(changes, "; ");
  if (neighbors.num_samples() < samples.size())
    return concat("they are for ", format_count(neighbors.num_samples()), " samples, and the set has ",
                  format_count(samples.size()));
  return "";
}

}  // namespace

RetroDataset::RetroDataset(std::unique_ptr<const data::GptDataset> samples, std::shared_ptr<const ChunkDatabase> chunks,
                           const std::string& kind, const RetroSampleOptions& options)
    : samples_(std::move(samples)),
      chunks_(std::move(chunks)),
      neighbors_(neighbor_folder(options.workdir, kind, samples_->name())),
      options_(options) {
  const std::string why = mismatch(neighbors_, *samples_, *chunks_, options);
  if (!why.empty())
    throw UserError(concat("'", neighbor_folder(options.workdir, kind, samples_->name()).string(),
                           "' holds neighbours of other samples than those of this run: ", why,
                           ". Run 'espalier retro build' with the flags of this run (--overwrite replaces what is "
                           "there), or use the flags that it was run with"),
                    ExitCode::kBadData);
  const int64_t length = options.num_retrieved_chunks * chunks_->chunk_length();
  fields_ = {samples_->fields().front(),
             {.name = "neighbor_tokens",
              .shape = {neighbors_.chunks_of_sample(), options.num_neighbors, length},
              .holds_ids = true},
             {.name = "neighbor_counts", .shape = {neighbors_.chunks_of_sample()}}};
}

void RetroDataset::read(int64_t number, data::Sample& sample) const {
  samples_->read(number, sample);
  sample.arrays.resize(fields_.size());
  const int64_t of_sample = neighbors_.chunks_of_sample(), length = fields_[kNeighborTokens].shape[2];
  std::vector<int64_t>& tokens = sample.arrays[kNeighborTokens];
  std::vector<int64_t>& counts = sample.arrays[kNeighborCounts];
  tokens.assign(static_cast<size_t>(fields_[kNeighborTokens].size()), chunks_->end_of_document());
  counts.assign(static_cast<size_t>(of_sample), 0);
  for (int64_t chunk = 0; chunk < of_sample; ++chunk) {
    const std::span<const int64_t> row = neighbors_.row(number, chunk);
    int64_t& count = counts[static_cast<size_t>(chunk)];
    for (; count < options_.num_neighbors && row[static_cast<size_t>(count)] >= 0; ++count)
      chunks_->read(chunks_->place(row[static_cast<size_t>(count)]), options_.num_retrieved_chunks,
                    tokens.data() + (chunk * options_.num_neighbors + count) * length);
  }
}

std::string RetroDataset::description() const {
  return concat(samples_->description(), "\n  ", options_.num_neighbors, " neighbours of each chunk of ",
                chunks_->chunk_length(), " tokens, of ", format_count(chunks_->size()), " chunks");
}

data::OrderFingerprint RetroDataset::fingerprint(const std::string& reading) const {
  return samples_->fingerprint(concat(reading, ", with ", options_.num_neighbors, " neighbours of ",
                                      options_.num_retrieved_chunks, " chunks, ", hex64(neighbors_.checksum())));
}

RetroDataSets RetroDataSets::open(const data::DataSetOptions& data, const RetroSampleOptions& options) {
  const auto chunks = std::make_shared<const ChunkDatabase>(options.workdir);
  data::GptDataSets samples = data::GptDataSets::open(data);
  RetroDataSets sets;
  sets.train = std::make_unique<const RetroDataset>(std::move(samples.train), chunks, "train", options);
  const auto add = [&](auto& from, auto& to, const char* kind) {
    for (auto& set : from) to.push_back(std::make_unique<const RetroDataset>(std::move(set), chunks, kind, options));
  };
  if (data.valid_samples > 0) add(samples.valid, sets.valid, "valid");
  if (data.test_samples > 0) add(samples.test, sets.test, "test");
  return sets;
}

}  // namespace espalier::retrieval
