// Rows of packed pairs of input and target, for finetuning on many tasks (Megatron-DeepSpeed's MTF data).
//
//   const PackedDataSets sets = PackedDataSets::open(options, pad_id);
//   Sample sample;
//   sets.train->read(17, sample);
//   const RowMasks masks = row_masks(sample, 17, rules);   // data/decoder_masks.h: what the model sees and learns
//
// A data set of pairs is two token files, PREFIX_inputs_document and PREFIX_targets_document, as `preprocess
// --json-keys inputs targets --output-prefix PREFIX` makes them: sequence i of one belongs to sequence i of the other.
// DataSetOptions::endings are those of Objective::token_file_endings(). Splits and ranges count pairs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/blend.h"
#include "data/data_plan.h"
#include "data/packed_index.h"
#include "data/sample_source.h"
#include "data/token_store.h"
#include "text/tokenizer.h"

namespace espalier::data {

// What fills rows up: PAD, else the end of a document, else id 0. Nothing reads it.
int32_t pad_id(const text::Tokenizer& tokenizer);

inline constexpr const char* kInputsEnding = "_inputs_document";
inline constexpr const char* kTargetsEnding = "_targets_document";

class PackedDataset final : public SampleSource {
 public:
  // The arrays of a sample, each of sequence length + 1 entries; the names are upstream's.
  enum Field : size_t {
    kIds,       // "decoder_token_ids": the pad id after the last pair
    kSegments,  // "decoder_segment_ids": 1, 2, ... for the pairs of the row; 0 for padding
    kIsInput    // "decoder_is_inputs": 1 for tokens of an input, 0 for targets and padding
  };

  struct Part {
    std::string prefix;
    std::shared_ptr<const TokenStore> inputs, targets;
    PackedIndex index;
    DocumentRange pairs;
    int64_t num_samples_asked = 0;
    double weight = 1;  // the sum being 1
  };

  const std::string& name() const override { return name_; }
  int64_t size() const override { return blend_ ? blend_->size() : parts_.front().index.size(); }
  const std::vector<SampleField>& fields() const override { return fields_; }
  void read(int64_t number, Sample& sample) const override;
  const std::vector<std::string>& source_names() const override { return source_names_; }
  std::string description() const override;
  std::vector<std::string> prefixes() const override;
  void probe_ids(int64_t vocab_size) const override;
  OrderFingerprint fingerprint(const std::string& reading) const override;

  // The inputs and the targets of each data set. A pair is two pieces, each whole.
  std::vector<TracedFile> traced_files() const override;
  std::vector<SamplePiece> pieces(int64_t number) const override;
  // A pass over the order of the source.
  std::vector<FoundPiece> find(const TracedFile& file, const DocumentRange& sequences) const override;
  int64_t source_of(int64_t number) const override { return place(number).set; }

  const std::vector<Part>& parts() const { return parts_; }

 private:
  friend class PackedDatasetBuilder;

  BlendIndex::Place place(int64_t number) const {
    return blend_ ? blend_->place(number) : BlendIndex::Place{0, number};
  }
  std::vector<SamplePiece> pieces_of(const BlendIndex::Place& place) const;

  std::string name_;
  int64_t seed_ = 0, row_length_ = 0, pad_id_ = 0;
  std::vector<SampleField> fields_;
  std::vector<Part> parts_;
  std::vector<std::string> source_names_;
  std::optional<BlendIndex> blend_;  // with several parts
};

struct PackedDataSets {
  std::unique_ptr<const PackedDataset> train;
  // One for each group; a group whose split holds no pairs is left out, with a warning if samples of it were asked for.
  std::vector<std::unique_ptr<const PackedDataset>> valid, test;

  // Throws one UserError with every problem of the options; bad token files are UserErrors with their numbers.
  static PackedDataSets open(const DataSetOptions& options, int64_t pad_id);
  // The training set alone.
  static std::unique_ptr<const PackedDataset> open_train(const DataSetOptions& options, int64_t pad_id);
};

// Files that do not pair, pairs without an input or a target, and data sets no pair of which fits into a row. Opens
// every file of the plan that exists and is whole.
void check_pairs(const DataPlan& plan, int64_t sequence_length, Problems& problems);

}  // namespace espalier::data
