// The files of a tokenizer beside a model's weights: found in a Hugging Face folder, kept in a checkpoint under
// tokenizer/, and put beside an exported model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "store/step_writer.h"
#include "text/tokenizer.h"

namespace espalier::convert {

struct FoundTokenizer {
  text::TokenizerOptions options;       // as if the files lay in `kept_in`
  std::vector<store::ExtraFile> files;  // "tokenizer/tokenizer.json", ...: every file of a tokenizer that exists
  int64_t vocab_size = 0;               // its ids; `rows` where no tokenizer could be read
  std::vector<std::string> notes;
};

// What a folder with a model of `rows` token ids holds: tokenizer.json, or vocab.json and merges.txt, or
// tokenizer.model; else a NullTokenizer with that many ids.
FoundTokenizer find_tokenizer(const std::filesystem::path& folder, int64_t rows, const std::filesystem::path& kept_in);

}  // namespace espalier::convert
