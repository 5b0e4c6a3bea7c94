// A trained byte-level BPE as the files that other programs read, byte for byte as Hugging Face tokenizers writes them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/pending_file.h"
#include "text/bpe_trainer.h"

namespace espalier::text {

// The files of a tokenizer in `folder`: tokenizer.json; tokenizer_config.json, which names the end-of-document token
// (none if `eod` is empty) and BERT's tokens ([PAD], [CLS], [SEP], [MASK]) where
// they are special tokens, for transformers and for load_hf_tokenizer; and for PieceRule::kGpt2, the only rule that
// their readers know, vocab.json and merges.txt.
std::vector<std::filesystem::path> tokenizer_files_written(PieceRule rule, const std::filesystem::path& folder);

// Writes them all, or none. From its beginning to its end no other process can write them.
class TokenizerWriter {
 public:
  // Makes the folder where it does not exist.
  TokenizerWriter(PieceRule rule, const std::filesystem::path& folder);
  void write(const TrainedBpe& bpe, const std::string& eod);

 private:
  PieceRule rule_;
  PendingFolder folder_;
  std::vector<PendingFile> files_;  // in the order of tokenizer_files_written()
};

}  // namespace espalier::text
