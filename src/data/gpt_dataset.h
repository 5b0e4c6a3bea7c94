// The samples of GPT: token files, their orders and the blend of them, behind one numbering.
//
//   const GptDataSets sets = GptDataSets::open(options);
//   std::vector<int64_t> ids(sequence_length + 1);
//   const int64_t source = sets.train->sample(17, ids);   // which data set of the blend it comes from
//
// Opening builds the orders (seconds for 10^8 documents, with progress) and maps the token files; a sample is read
// where it is. Immutable afterwards; any number of threads may read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/data_plan.h"
#include "data/mixture.h"
#include "data/sample_order.h"
#include "data/sample_source.h"
#include "data/token_store.h"

namespace espalier::data {

class GptDataset final : public SampleSource {
 public:
  // Of Sample::arrays.
  enum Field : size_t {
    kIds,      // "text": sequence length + 1 ids
    kSegments  // "segments", with --packing best-fit: 1, 2, ... for the documents of the sample, 0 for padding
  };

  const std::string& name() const override { return name_; }
  // At least as many as were asked for.
  int64_t size() const override { return mixture_.size(); }
  int64_t sequence_length() const { return sequence_length_; }
  Packing packing() const { return packing_; }
  OrderKind order_kind() const { return order_kind_; }
  // As many as hold the tokens of all sources once, in whatever proportion the samples take them. Of whole documents
  // it is not said: what is left empty depends on the order.
  int64_t samples_per_epoch() const override;
  const std::vector<SampleField>& fields() const override { return fields_; }
  void read(int64_t number, Sample& sample) const override;

  // Writes sequence length + 1 ids (the inputs are all but the last, the labels all but the first) and returns the
  // source, an index into source_names().
  int64_t sample(int64_t number, std::span<int64_t> ids) const;

  std::vector<TracedFile> traced_files() const override;
  std::vector<SamplePiece> pieces(int64_t number) const override;
  // A pass over the order of the source (SampleOrder::sightings).
  std::vector<FoundPiece> find(const TracedFile& file, const DocumentRange& sequences) const override;
  int64_t source_of(int64_t number) const override { return place(number).set; }
  // The source that a sample comes from, and its number there.
  BlendIndex::Place place(int64_t number) const { return mixture_.place(number); }

  // One name for each data set of the blend: the last part of its prefix, longer where two would be equal.
  const std::vector<std::string>& source_names() const override { return source_names_; }
  // "train: 20,360 samples of 64 tokens, 1 epoch of 949 documents of data/wiki", a line for each source; of a mixture
  // in stages what each of them reads.
  std::string description() const override;
  std::vector<std::string> prefixes() const override;
  OrderFingerprint fingerprint(const std::string& reading) const override;

  // What the set is made of, in the order of source_names().
  struct Part {
    std::shared_ptr<const TokenStore> store;
    // Of the samples asked for, and, where stages read more than that, of further epochs.
    OrderChain order;
    DocumentRange documents;
    int64_t num_samples_asked = 0;
    double weight = 1;  // where the run begins, the sum being 1
  };
  const std::vector<Part>& parts() const { return parts_; }
  const Mixture& mixture() const { return mixture_; }
  int64_t seed() const { return seed_; }

  void probe_ids(int64_t vocab_size) const override;

 private:
  friend class GptDatasetBuilder;

  std::string name_;
  int64_t seed_ = 0;
  int64_t sequence_length_ = 0;
  std::vector<SampleField> fields_;
  std::vector<Part> parts_;
  std::vector<std::string> source_names_;
  Packing packing_ = Packing::kNone;
  OrderKind order_kind_ = OrderKind::kMegatron;
  int64_t pad_id_ = 0;
  Mixture mixture_;
};

struct GptDataSets {
  std::unique_ptr<const GptDataset> train;
  // One for each group; a group whose split holds no documents is left out, with a warning if samples of it were
  // asked for.
  std::vector<std::unique_ptr<const GptDataset>> valid, test;

  // Throws one UserError with every problem of the options; bad token files are UserErrors with their numbers.
  static GptDataSets open(const DataSetOptions& options);
  // The training set alone.
  static std::unique_ptr<const GptDataset> open_train(const DataSetOptions& options);
};

}  // namespace espalier::data
