// A trained byte-level BPE as the files that other programs read, byte for byte as Hugging Face tokenizers writes them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "text/bpe_trainer.h"

namespace espalier::text {

// Into `folder`, which exists: tokenizer.json; tokenizer_config.json, which names the end-of-document token (none if
// `eod` is empty) for transformers and for load_hf_tokenizer; and for PieceRule::kGpt2, the only rule that their
// readers know, vocab.json and merges.txt. Returns the files written.
std::vector<std::filesystem::path> write_tokenizer(const TrainedBpe& bpe, PieceRule rule, const std::string& eod,
                                                   const std::filesystem::path& folder);

}  // namespace espalier::text
