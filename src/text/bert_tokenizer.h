// Megatron's BertWordPieceLowerCase and BertWordPieceCase: WordPiece over a vocab.txt with one piece a line.
//
// As Megatron reads it: "[CLS]" and the like inside a text are plain text, [BOS] and [EOS] are added after the
// vocabulary where it lacks them, then <extra_id_0> and so on. The end of a document is [EOS].
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "text/tokenizer.h"

namespace espalier::text {

// `extra_ids` is --vocab-extra-ids.
std::unique_ptr<Tokenizer> load_bert_tokenizer(const std::filesystem::path& vocab_file, bool lowercase,
                                               int64_t extra_ids = 0);

}  // namespace espalier::text
