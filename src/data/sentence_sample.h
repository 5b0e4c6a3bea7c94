// From some sentences to one sample of BERT or T5: Megatron-DeepSpeed's, to the bit.
//
// BERT (`text types labels is_random loss_mask padding_mask truncated`): [CLS] A [SEP] B [SEP], where A and B are two
// halves of the sentences, cut at a random sentence and swapped in half of the samples (is_random is 1 then); without
// the binary head [CLS] A [SEP] with all of them. What exceeds the target length is taken off token by token, from the
// longer half, from a random end (truncated). Tokens are masked (data/masked_lm.h): labels hold the ids to predict and
// -1 elsewhere, loss_mask 1 where there is one. Padding has PAD in text and, as upstream, in types too, 0 in
// padding_mask.
//
// T5 (`text_enc text_dec labels loss_mask truncated`): the sentences, cut to the target length. Each run that is left
// out is in text_enc as a sentinel; text_dec is BOS, then each sentinel with its run; labels are text_dec a place
// earlier, ended by EOS, with -1 as padding. Upstream's masks of attention follow from the ids: a query sees a key
// where neither is 0, the decoder none after itself.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/sample_source.h"
#include "data/sentence_vocabulary.h"

namespace espalier::data {

// What the samples are made by.
struct SentenceSampleOptions {
  SentenceModel model = SentenceModel::kBert;
  int64_t sequence_length = 0;          // of text; of T5's encoder
  int64_t decoder_sequence_length = 0;  // T5: above 0
  double mask_probability = 0.15;       // above 0, to 1
  double short_probability = 0.1;       // 0 to 1: of the sentence map
  bool binary_head = true;              // BERT: two halves and their order
  SentenceVocabulary vocabulary;

  // Of a sample's sentences, without the special tokens: 3 of BERT, and 2 of T5 as upstream counts.
  int64_t max_length() const { return sequence_length - (model == SentenceModel::kBert ? 3 : 2); }
  int64_t min_sentences() const { return model == SentenceModel::kBert && binary_head ? 2 : 1; }

  // Lengths and shares that make no sample.
  void check(Problems& problems) const;
  // What may end a run at some sample of T5 (too few sentinels, too short a decoder), or nothing.
  std::string caution() const;
  // "T5 of 128 and 64 tokens, 15 % masked, ...": all that decides a sample besides the sentences.
  std::string description() const;
};

struct SentenceRun {
  std::span<const int32_t> ids;   // of all sentences; below the size of the vocabulary
  std::span<const int64_t> ends;  // of each sentence, in ids; at least min_sentences()
  int64_t target = 0;             // at most max_length()
  uint32_t seed = 0;              // of this sample: the run's and the sample's number
};

// Tokens begin to end - 1 of a run of sentences, which a sample has from place `at` on.
struct SentenceStretch {
  int64_t begin = 0, end = 0, at = 0;
};

class SentenceSampleMaker {
 public:
  virtual ~SentenceSampleMaker() = default;
  const std::vector<SampleField>& fields() const { return fields_; }
  // Sets sample.arrays. Throws a UserError (kUsage) with the numbers where T5's sentinels or decoder do not suffice.
  virtual void make(const SentenceRun& run, Sample& sample) const = 0;
  // Which tokens of the run are in the sample that make() makes of it; `run.ids` may be empty, for the lengths of the
  // sentences decide. Places are those of BERT's `text`, where a mask or a random id may stand for the token, and of
  // T5's text before runs of it are taken out.
  virtual std::vector<SentenceStretch> stretches(const SentenceRun& run) const = 0;

  static std::unique_ptr<const SentenceSampleMaker> create(const SentenceSampleOptions& options);

 protected:
  std::vector<SampleField> fields_;
};

}  // namespace espalier::data
