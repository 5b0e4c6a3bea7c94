// Questions and passages as samples: what a retriever is finetuned on.
//
// Of each sample the question, the passage that answers it, and other passages: for training `hard_negatives` of the
// hard ones, drawn anew each time, and where there are fewer, drawn from the others; for an evaluation the first
// `negatives` of the others and the first `hard_negatives`. The draws of sample n are those of CPython's Random(s),
// with s a hash of the seed and n, so that they are the same for every layout and after every stop.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/epoch_order.h"
#include "data/question_examples.h"
#include "data/sample_source.h"
#include "text/tokenizer.h"

namespace espalier::data {

struct QuestionSampleOptions {
  int64_t sequence_length = 0;  // of questions and of passages
  int64_t seed = 0;
  int64_t hard_negatives = 0, negatives = 0;
  bool draws = true;  // false: of an evaluation
  int32_t cls = 0, sep = 0, pad = 0;

  // Of a sample, the one that answers included. A question that has fewer leaves rows of padding alone.
  int64_t num_contexts() const { return 1 + hard_negatives + negatives; }
  KeptPassages kept() const;  // of each question, all that samples may hold
};

class QuestionDataset final : public SampleSource {
 public:
  // Fields: query_tokens, query_pad_mask [length]; context_tokens, context_pad_mask [contexts, length]; number, of the
  // question in its set; counts, 0 for what only fills up the last batch of an epoch.
  enum Array : size_t { kQueryTokens, kQueryPadMask, kContextTokens, kContextPadMask, kNumber, kCounts };

  // The tokenizer outlives it.
  QuestionDataset(QuestionSet set, const QuestionSampleOptions& options, const TaskEpochs& epochs,
                  const text::Tokenizer& tokenizer);

  const std::string& name() const override { return set_.name; }
  int64_t size() const override { return order_.size(); }
  const std::vector<SampleField>& fields() const override { return fields_; }
  void read(int64_t number, Sample& sample) const override;
  const std::vector<std::string>& source_names() const override { return source_names_; }
  std::string description() const override;
  std::vector<std::string> prefixes() const override { return {}; }
  void probe_ids(int64_t) const override {}  // the run's own tokenizer makes them
  OrderFingerprint fingerprint(const std::string& reading) const override;

 private:
  std::vector<const PassageText*> contexts_of(const QuestionExample& example, int64_t number) const;

  QuestionSet set_;
  QuestionSampleOptions options_;
  const text::Tokenizer& tokenizer_;
  std::vector<SampleField> fields_;
  std::vector<std::string> source_names_;
  EpochOrder order_;
};

}  // namespace espalier::data
