// Requests as the ids that a model sees: rows of at most sequence length + 1, of which the last are predicted.
//
// What is at the left of a row is cut where it would be longer; a continuation that is longer than the sequence is
// refused. What a text is generated after leaves room for its max_tokens. Tokenization::kSeparate encodes context and
// continuation apart, as lm_eval did in 2022; kJoint encodes them together and parts the ids where the context's end,
// as lm_eval 0.4 does.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "eval/task.h"
#include "text/tokenizer.h"

namespace espalier::eval {

// Log-likelihood of the last `num_predicted` ids, each after those before it.
struct TokenRow {
  std::vector<int32_t> ids;
  int64_t num_predicted = 0;
};

// Who reads the context: the decoder, before the continuation; or an encoder, with what the tokenizer puts around a
// text (T5's end), while the continuation, encoded apart, is all that the decoder says. Then each part may be as long
// as the sequence.
enum class ContextReader { kDecoder, kEncoder };

// One per thread.
class RequestEncoder {
 public:
  // `prefix`: the id that is used where there is no context (the end of a document). `tokenizer` must outlive it.
  RequestEncoder(const text::Tokenizer& tokenizer, Tokenization tokenization, int32_t prefix, int64_t sequence_length,
                 ContextReader reader = ContextReader::kDecoder);

  // One row; of a rolling request as many as it has windows, and none for an empty text. A UserError names the number
  // of ids of a continuation that does not fit.
  std::vector<TokenRow> encode(const Request& request);
  // Requests so far that lost the beginning of their context.
  int64_t num_cut() const { return num_cut_; }

 private:
  std::vector<int32_t> ids_of(std::string_view text);
  std::vector<TokenRow> rolling_rows(const std::vector<int32_t>& ids) const;
  TokenRow prompt_row(const Request& request);
  TokenRow row_with_encoder(const Request& request);
  void cut_left(std::vector<int32_t>& ids, size_t length);
  void check_continuation(const std::vector<int32_t>& continuation, const Request& request) const;

  const text::Tokenizer& tokenizer_;
  std::unique_ptr<text::Encoder> encoder_;
  Tokenization tokenization_;
  int32_t prefix_;
  size_t sequence_length_;
  ContextReader reader_;
  int64_t num_cut_ = 0;
};

}  // namespace espalier::eval
