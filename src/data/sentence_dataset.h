// The samples of BERT and T5: token files of sentences, their maps and the blend of them, behind one numbering.
//
//   const SentenceDataSets sets = SentenceDataSets::open(options, samples);
//   Sample sample;
//   sets.train->read(17, sample);
//
// Opening builds the maps (with progress); a sample is made when it is read, from a generator of its own that the seed
// and its number in its data set begin. Splits and ranges count documents, not sentences.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/blend.h"
#include "data/data_plan.h"
#include "data/sample_source.h"
#include "data/sentence_map.h"
#include "data/sentence_sample.h"
#include "data/token_store.h"

namespace espalier::data {

class SentenceDataset final : public SampleSource {
 public:
  struct Part {
    std::shared_ptr<const TokenStore> store;
    SentenceMap map;
    DocumentRange documents;
    int64_t num_samples_asked = 0;
    double weight = 1;  // the sum being 1
  };

  const std::string& name() const override { return name_; }
  int64_t size() const override { return blend_ ? blend_->size() : parts_.front().map.size(); }
  const std::vector<SampleField>& fields() const override { return maker_->fields(); }
  // An id of the file that the vocabulary does not have is a UserError (kBadData) with its place.
  void read(int64_t number, Sample& sample) const override;
  const std::vector<std::string>& source_names() const override { return source_names_; }
  std::string description() const override;
  std::vector<std::string> prefixes() const override;
  void probe_ids(int64_t vocab_size) const override;
  OrderFingerprint fingerprint(const std::string& reading) const override;

  // A piece is of one sentence, as far as it was not cut off.
  std::vector<TracedFile> traced_files() const override;
  std::vector<SamplePiece> pieces(int64_t number) const override;
  // A pass over the map of the source.
  std::vector<FoundPiece> find(const TracedFile& file, const DocumentRange& sequences) const override;
  int64_t source_of(int64_t number) const override { return place(number).set; }
  bool shows_places() const override { return options_.model == SentenceModel::kBert; }

  const std::vector<Part>& parts() const { return parts_; }
  const SentenceSampleOptions& options() const { return options_; }

  // Where sample `number` is: a part, and a row of its map.
  BlendIndex::Place place(int64_t number) const {
    return blend_ ? blend_->place(number) : BlendIndex::Place{0, number};
  }

 private:
  friend class SentenceDatasetBuilder;

  // The sentences of a row of a part's map, without their ids, and how a sample is made of them. `ends` becomes what
  // the result looks at.
  SentenceRun run_of(const BlendIndex::Place& place, std::vector<int64_t>& ends) const;
  std::vector<SamplePiece> pieces_of(const BlendIndex::Place& place) const;

  std::string name_;
  int64_t seed_ = 0;
  SentenceSampleOptions options_;
  std::unique_ptr<const SentenceSampleMaker> maker_;
  std::vector<Part> parts_;
  std::vector<std::string> source_names_;
  std::optional<BlendIndex> blend_;  // with several parts
};

// DataSetOptions::sequence_length and SentenceSampleOptions::sequence_length are the same.
struct SentenceDataSets {
  std::unique_ptr<const SentenceDataset> train;
  // One for each group; a group whose split holds no documents is left out, with a warning if samples of it were asked
  // for.
  std::vector<std::unique_ptr<const SentenceDataset>> valid, test;

  // Throws one UserError with every problem of the options; bad token files are UserErrors with their numbers.
  static SentenceDataSets open(const DataSetOptions& data, const SentenceSampleOptions& samples);
  // The training set alone.
  static std::unique_ptr<const SentenceDataset> open_train(const DataSetOptions& data,
                                                           const SentenceSampleOptions& samples);
};

// Token files that do not record where sentences end (each document is one) are a problem for BERT: always with the
// binary head, without it where documents are longer than a sample, of which the rest would never be read. T5 is warned
// of that. Opens every file of the plan that exists and is whole.
void check_sentences(const DataPlan& plan, const SentenceSampleOptions& samples, Problems& problems);

}  // namespace espalier::data
