// Megatron's GPT2BPETokenizer: vocab.json and merges.txt as GPT-2 published them.
//
// As Megatron-DeepSpeed reads them: the first line of merges.txt is a comment whatever it says, a piece that merges
// make but the vocabulary lacks becomes id 0, "<|endoftext|>" inside a text is plain text, and the end-of-document id
// is the vocabulary's "<|endoftext|>".
#pragma once

#include <filesystem>
#include <memory>

#include "text/tokenizer.h"

namespace espalier::text {

std::unique_ptr<Tokenizer> load_gpt2_tokenizer(const std::filesystem::path& vocab_file,
                                               const std::filesystem::path& merge_file);

}  // namespace espalier::text
