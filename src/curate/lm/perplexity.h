// How surprising a text is to a language model of n-grams: 10 to the power of minus its log10 probability for each word
// and each line's end. What CCNet (Wenzek et al. 2020) and BigScience measured documents by.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "curate/lm/model_text.h"
#include "curate/lm/ngram_model.h"
#include "text/sentencepiece_pieces.h"

namespace espalier::curate {

class PerplexityScorer {
 public:
  struct Files {
    std::string model;          // as NgramModel reads it
    std::string sentencepiece;  // a .model; empty: words are separated by blanks
    ModelText setting = ModelText::kPlain;
  };
  // Throws a UserError where a file cannot be read.
  explicit PerplexityScorer(const Files& files);

  // Lines are sentences; with CCNet's and BigScience's texts the document is one. Their values are rounded to a tenth,
  // as they compared them, and CCNet has none for a text of which nothing is left. Any thread.
  std::optional<double> operator()(std::string_view text) const;
  const NgramModel& model() const { return model_; }

 private:
  NgramModel model_;
  std::unique_ptr<text::SentencePieceCutter> cutter_;
  ModelText setting_;
};

}  // namespace espalier::curate
