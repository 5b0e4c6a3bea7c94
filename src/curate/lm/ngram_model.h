// A language model of n-grams with backoff: the probabilities of KenLM 0.3.0, to the bit where its file is read.
//
//   const NgramModel model("en.arpa.bin");
//   model.score("▁the ▁river")   // log10 of the probability of these words and of the end, after <s>
//
// For each word the longest n-gram that the model has decides; the backoffs of the longer contexts that it has are
// added (Katz 1987; Heafield, KenLM: Faster and Smaller Language Model Queries, 2011). Sums are floats, as KenLM's.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "curate/lm/ngram_table.h"

namespace espalier::curate {

class NgramModel {
 public:
  // An ARPA file, plain or compressed, or a binary file of KenLM. A UserError names what is wrong with it.
  explicit NgramModel(const std::string& file);

  int order() const { return table_->order(); }
  std::string description() const { return table_->description(); }
  // Words are separated by ASCII blanks and line ends. Any thread.
  float score(std::string_view sentence) const;

 private:
  // The words before the next one, the last first, as far as the model has n-grams of them, and the backoff of each
  // n-gram that they are.
  struct State {
    uint32_t words[kMostNgramWords];
    float backoffs[kMostNgramWords];
    int length = 0;
  };
  float score(const State& state, uint32_t word, State& next) const;

  std::unique_ptr<NgramTable> table_;
  uint32_t end_ = 0;
  State begin_;
};

}  // namespace espalier::curate
