// SentencePiece .model files (unigram, BPE, word, character): the ids of sentencepiece 0.2.3 as Megatron's wrappers use
// it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "text/tokenizer.h"

namespace espalier::text {

enum class SentencePieceWrapper {
  kGpt,       // GPTSentencePieceTokenizer: the pieces of the text; the end of a document is the model's </s>
  kLlama2,    // Llama2Tokenizer: the same after <s>
  kMegatron,  // SentencePieceTokenizer: <CLS>, <SEP>, <EOD>, <MASK>, the model's pad, bos and eos and <extra_id_0> ...
              // are tokens of their own, found in the text first and added to the vocabulary where it lacks them
};

// `extra_ids` is --vocab-extra-ids, for kMegatron.
std::unique_ptr<Tokenizer> load_sentencepiece_tokenizer(const std::filesystem::path& model_file,
                                                        SentencePieceWrapper wrapper, int64_t extra_ids = 0);

}  // namespace espalier::text
