// Tokenizers of Hugging Face: tokenizer.json with a BPE model (GPT-2, BLOOM, Llama, Mistral, Qwen, ...), Unigram (T5,
// XLM-R), WordPiece (BERT) or WordLevel.
//
// encode() gives the ids of `tokenizers` 0.23's encode(text), special tokens of the post-processor included, as
// Megatron's PretrainedFromHF uses it. "truncation" and "padding" of the file have no effect: transformers switches
// both off when it encodes a text without being asked for them. A part that is not supported is refused by name at
// load.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "text/tokenizer.h"

namespace espalier::text {

// `path` is a tokenizer.json or the folder that holds one. The end-of-document id is the eos_token of
// tokenizer_config.json next to it, else of special_tokens_map.json, else the eos_token_id of generation_config.json;
// the tokenizer has none where these say nothing.
// `extra_ids`: <extra_id_0> and so on become special tokens after the others (--vocab-extra-ids).
std::unique_ptr<Tokenizer> load_hf_tokenizer(const std::filesystem::path& path, int64_t extra_ids = 0);

}  // namespace espalier::text
