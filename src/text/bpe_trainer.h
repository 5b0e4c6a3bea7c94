// Trains a byte-level BPE: the vocabulary and merges of Hugging Face tokenizers' BpeTrainer, fed with the same
// documents (train_from_iterator) under the same settings, with ByteLevel's whole alphabet.
//
//   BpeTrainingOptions options{.vocab_size = 50'000, .special_tokens = {"<|endoftext|>"}, .spill_folder = folder};
//   const TrainedBpe bpe = train_bpe([&](std::string_view& text) { return documents.next(text); }, options);
//   TokenizerWriter(options.rule, folder).write(bpe, "<|endoftext|>");   // text/tokenizer_writer.h
//
// The result depends on the documents (not on their order) and on the settings that are marked so, not on memory or
// workers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/pretokenizer.h"

namespace espalier::text {

struct BpeTrainingOptions {
  // These make the result.
  int64_t vocab_size = 30'000;  // special tokens and the 256 bytes included; fewer if the text has no more pairs
  int64_t min_frequency = 2;    // of a pair that is merged
  std::vector<std::string> special_tokens;  // the first ids, in this order; text like them is trained on as text
  PieceRule rule = PieceRule::kGpt2;        // cuts documents into words, inside which pairs are merged
  int64_t min_word_frequency = 1;           // rarer words are left out, unlike in tokenizers

  // These do not.
  int64_t memory_bytes = int64_t{1} << 30;  // for word counts, then for learning; documents on their way come on top
  int64_t workers = 1;                      // threads that count
  std::filesystem::path spill_folder;       // for word counts beyond the memory; nothing stays there
};

struct TrainedBpe {
  std::vector<std::string> pieces;                  // by id, as they are in a vocabulary ("\u0120the")
  std::vector<std::pair<int32_t, int32_t>> merges;  // ids, in the order of their ranks
  std::vector<std::string> special_tokens;          // without repetitions: ids 0, 1, ...

  int64_t num_documents = 0, num_bytes = 0, num_words = 0, num_distinct_words = 0;
  int64_t num_replaced = 0;   // places that were not UTF-8 and became U+FFFD
  int64_t spilled_bytes = 0;  // of word counts
};

// Gives the next document, valid until the next call; false at the end. Called from one thread.
using NextDocument = std::function<bool(std::string_view& text)>;

// Shows progress on stderr, once the documents have been read. A UserError says how much memory the words of the text
// would need, if that is too little.
TrainedBpe train_bpe(const NextDocument& next, const BpeTrainingOptions& options);

}  // namespace espalier::text
