// What BERT's and T5's samples have to know of a vocabulary.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/tokenizer.h"

namespace espalier::data {

enum class SentenceModel { kBert, kT5 };

inline const char* name_of(SentenceModel model) { return model == SentenceModel::kBert ? "BERT" : "T5"; }

struct SentenceVocabulary {
  static constexpr int32_t kNone = -1;

  // Before padding, the tokens of --vocab-extra-ids included: BERT's random replacements are 0 to size - 1.
  int64_t size = 0;
  int32_t cls = kNone, sep = kNone, mask = kNone, pad = kNone;
  // T5's decoder begins with bos and ends with eos.
  int32_t bos = kNone, eos = kNone;
  std::vector<int32_t> sentinels;    // <extra_id_0>, <extra_id_1>, ...: as many as there are in a row
  std::vector<bool> continues_word;  // by id: the piece begins with "##" and so belongs to the word before it

  // Adds to `problems` what `model` needs and `tokenizer` lacks, and what to do about it. A tokenizer without BOS (that
  // of Hugging Face's T5) begins T5's decoder with PAD, as transformers does.
  static SentenceVocabulary make(const text::Tokenizer& tokenizer, SentenceModel model, Problems& problems);
};

// The ids of a text in which the words <extra_id_0> and so on are those tokens; a number beyond the tokenizer's last is
// a UserError. One that finds them by itself gets the text as a whole: what it puts around a text is around all of
// it.
std::vector<int32_t> encode_with_sentinels(const text::Tokenizer& tokenizer, std::string_view text);

}  // namespace espalier::data
