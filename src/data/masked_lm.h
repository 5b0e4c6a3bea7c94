// Which tokens of a text BERT and T5 have to predict: Megatron-DeepSpeed's choice, to the bit.
//
// Whole words are chosen ("##" pieces belong to the word before them), in runs of up to `max_words` words, from random
// places, until round(probability x tokens) tokens are masked: at least one, and no more than `max_predictions`. A run
// that would be too much is shortened word by word; one that meets a masked token is left out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/numpy_random.h"
#include "data/sentence_vocabulary.h"

namespace espalier::data {

enum class MaskingStyle {
  // Runs of 1 to 3 words, of k words with weight 1 / k. Of the tokens 80 % become MASK, 10 % stay, 10 % become any id.
  kBert,
  // Runs of up to 10 words, of a length that is geometric with 0.2. All of their tokens are taken.
  kT5,
};

struct MaskingRequest {
  MaskingStyle style = MaskingStyle::kBert;
  double probability = 0.15;   // above 0
  double max_predictions = 0;  // not rounded: probability x the target length of the sample
};

struct MaskedText {
  std::vector<int32_t> ids;        // BERT: with MASK and random ids in their places; T5: as they were
  std::vector<int32_t> positions;  // of the masked tokens, run after run
  // A run is positions[begin] to positions[end - 1], ascending. By first position.
  struct Run {
    size_t begin = 0, end = 0;
  };
  std::vector<Run> runs;
};

// CLS and SEP are never masked. Draws from `random` what upstream draws up to its last use.
MaskedText mask_text(std::span<const int32_t> ids, const SentenceVocabulary& vocabulary, const MaskingRequest& request,
                     NumpyRandom& random);

}  // namespace espalier::data
