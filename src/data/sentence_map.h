// Which sentences make each sample of BERT and T5, and in which order the samples are read: Megatron-DeepSpeed's map,
// to the bit.
//
// A pure function of (sizes of the sentences, their documents, range of documents, longest sample, samples asked for,
// share of short samples, seed): every rank computes the same map. A sample is a run of whole sentences of one
// document, joined until a target length is reached: the longest, or, for one sample in 1 / share, a random shorter
// one. What is left of a document makes its last sample. Epochs are added until there are enough samples, the last one
// whole; then all of them are shuffled. A sample may be longer than its target: whoever reads it cuts it.
//
// Left out, as upstream does it: documents of several sentences one of which has more than 512 tokens, and documents of
// fewer than `min_sentences`. DocumentSurvey counts them.
//
//   const SentenceMap map = SentenceMap::build({store.sizes(), store.document_marks()},
//                                              {.documents = {0, 949}, .max_length = 509, .num_samples = 5000,
//                                               .seed = 1234, .min_sentences = 2, .name = "train"});
//   const SentenceMap::Row row = map[17];
#pragma once

#include <cstdint>
#include <string>

#include "data/document_sizes.h"
#include "data/index_array.h"
#include "data/splits.h"

namespace espalier::data {

constexpr int64_t kLongSentence = 512;  // a document with a sentence of more tokens is left out

// The sentences of a token file. What it looks at must outlive it.
struct Sentences {
  DocumentSizes sizes;
  DocumentMarks documents;
};

struct SentenceMapRequest {
  DocumentRange documents;
  int64_t max_length = 0;          // tokens of a sample without its special ones; at least 2
  int64_t num_samples = 0;         // at least this many; 0 gives one epoch
  double short_probability = 0.1;  // 0 to 1: the share of samples with a random shorter target; 1 / n in effect
  uint32_t seed = 0;
  int64_t min_sentences = 1;  // of a sample: 2 where it is cut into halves
  std::string name;           // for people only: "train of wiki"
};

// What becomes of the documents of a range; each counts once.
struct DocumentSurvey {
  int64_t num_documents = 0, num_sentences = 0;
  int64_t num_empty = 0, num_too_few = 0, num_long_sentence = 0;  // left out: no sentence, too few, one too long
  int64_t num_used = 0;

  // Throws a UserError (kBadData) where document marks contradict the file.
  static DocumentSurvey make(const Sentences& sentences, const SentenceMapRequest& request);
};

class SentenceMap {
 public:
  // Sentences begin to end - 1 of the file, to be cut to `target` tokens.
  struct Row {
    int64_t begin = 0, end = 0, target = 0;
    bool operator==(const Row&) const = default;
  };

  // Throws a UserError with the survey's numbers when no document can be used. Shows progress.
  static SentenceMap build(const Sentences& sentences, const SentenceMapRequest& request);

  int64_t size() const { return rows_.rows(); }
  Row operator[](int64_t sample) const { return {rows_[3 * sample], rows_[3 * sample + 1], rows_[3 * sample + 2]}; }
  const DocumentSurvey& survey() const { return survey_; }

  // Upstream's array: a row (begin, end, target) for each sample; uint32, or 64 bits for more than 2^32 - 1 sentences.
  const IndexArray& rows() const { return rows_; }
  static IndexArray::Type type_of(const Sentences& sentences);

 private:
  friend class SentenceMapCache;  // data/sentence_map_cache.h

  // Without rows. Throws as build() does.
  SentenceMap(const Sentences& sentences, const SentenceMapRequest& request);
  void fill(const Sentences& sentences, const SentenceMapRequest& request);

  DocumentSurvey survey_;
  IndexArray rows_;
};

}  // namespace espalier::data
