// Vectors of questions and passages from a checkpoint of a biencoder: texts in, rows of fp32 out.
//
// Each text passes alone, without padding and on one thread, several texts on several threads at once. So a row is a
// function of its text and the weights, whatever is embedded beside it and however many threads there are.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/sentence_vocabulary.h"
#include "infer/load_model.h"

namespace espalier::infer {

class TextEmbedder {
 public:
  struct Options {
    std::string load;  // run folder or step folder
    std::optional<int64_t> step;
    // Tokens of a text, special ones included: what is longer is cut. 256, or as many as the model has positions.
    std::optional<int64_t> sequence_length;
    int threads = 1;
  };
  // UserErrors: no such checkpoint, one of another family, positions that the model has not learned.
  explicit TextEmbedder(const Options& options);

  int64_t dimension() const { return loaded_.encoder->embedding_size(); }
  const LoadedModel& loaded() const { return loaded_; }

  // [CLS] question [SEP]
  void embed_questions(const std::vector<std::string>& questions, float* rows) const;
  // [CLS] title [SEP] text [SEP]
  struct Passage {
    std::string title, text;
  };
  void embed_passages(const std::vector<Passage>& passages, float* rows) const;

  // What decides the rows besides the texts: weights, tokenizer, length.
  std::string fingerprint() const;

 private:
  using Side = models::TextEncoder::Side;
  // The ids of text number `at`, without [CLS] and the last [SEP].
  using IdsOf = std::function<void(text::Encoder& encoder, size_t at, std::vector<int32_t>& ids)>;
  void embed(size_t count, Side side, const IdsOf& ids_of, float* rows) const;

  int threads_;
  LoadedModel loaded_;
  data::SentenceVocabulary vocabulary_;
  int64_t sequence_length_;
};

}  // namespace espalier::infer
