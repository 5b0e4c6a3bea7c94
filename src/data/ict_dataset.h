// The samples of the inverse cloze task (ICT): a sentence as a query, and the block of text that it is from, with the
// title of its document; Megatron-DeepSpeed's, to the bit.
//
//   const IctDataSets sets = IctDataSets::open(data, options);
//   sets.train->read(17, sample);
//
// Arrays: `query_tokens` [CLS] sentence [SEP], `context_tokens` [CLS] title [SEP] block [SEP], each padded to the
// sequence length, a `_pad_mask` of each (1 where there is a token) and `block_data`, the row of the map. From most
// blocks the query is taken out; in a share of `query_in_block_prob` it stays.
//
// Upstream draws the sentence and whether it stays from one Python generator for each set, in the order in which
// samples are read, so that they depend on who reads. Here sample n has the draws that a single process has which reads
// the samples in order from the first.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/block_map.h"
#include "data/data_plan.h"
#include "data/sample_source.h"
#include "data/sentence_vocabulary.h"
#include "data/token_store.h"

namespace espalier::data {

struct IctSampleOptions {
  int64_t sequence_length = 0;
  std::string titles_data_path;      // token files with one sequence for each document
  double query_in_block_prob = 0.1;  // 0 to 1
  bool use_one_sent_docs = false;
  SentenceVocabulary vocabulary;  // of BERT; not needed to look at maps alone

  int64_t max_length() const { return sequence_length - 3; }
  int64_t min_sentences() const { return use_one_sent_docs ? 1 : 2; }
  std::string description() const;
};

class IctDataset final : public SampleSource {
 public:
  enum Array : size_t { kQueryTokens, kQueryPadMask, kContextTokens, kContextPadMask, kBlockData };  // of a sample

  const std::string& name() const override { return name_; }
  int64_t size() const override { return map_.size(); }
  const std::vector<SampleField>& fields() const override { return fields_; }
  // An id of a file that the vocabulary does not have is a UserError (kBadData) with its place.
  void read(int64_t number, Sample& sample) const override;
  const std::vector<std::string>& source_names() const override { return source_names_; }
  std::string description() const override;
  std::vector<std::string> prefixes() const override { return {texts_->prefix(), titles_->prefix()}; }
  void probe_ids(int64_t vocab_size) const override;
  OrderFingerprint fingerprint(const std::string& reading) const override;

  const BlockMap& map() const { return map_; }
  const IctSampleOptions& options() const { return options_; }

 private:
  friend class IctDatasetBuilder;

  struct Draw {
    uint32_t sentence : 31, stays : 1;  // of the block's sentences, from 0; whether the block keeps it
  };
  void draw_queries();

  std::string name_;
  std::vector<std::string> source_names_;
  int64_t seed_ = 0, num_samples_asked_ = 0;
  DocumentRange documents_;
  IctSampleOptions options_;
  std::vector<SampleField> fields_;
  std::shared_ptr<const TokenStore> texts_, titles_;
  BlockMap map_;
  std::vector<Draw> draws_;  // of each sample
};

struct IctDataSets {
  std::unique_ptr<const IctDataset> train;
  std::vector<std::unique_ptr<const IctDataset>> valid, test;

  // check_ict() has found nothing; bad token files are UserErrors with their numbers.
  static IctDataSets open(const DataSetOptions& data, const IctSampleOptions& options);
};

// Adds what keeps these data from being read: titles that are missing or not one for each document, several data sets,
// which one file of titles cannot serve, a sequence too short.
void check_ict(const DataPlan& plan, const DataSetOptions& data, const IctSampleOptions& options, Problems& problems);

}  // namespace espalier::data
