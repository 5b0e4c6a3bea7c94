// The files of a tokenizer next to a model's weights: found in a Hugging Face folder, kept in a checkpoint under
// tokenizer/, and put next to an exported model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "store/step_writer.h"
#include "text/tokenizer.h"

namespace espalier::convert {

// What a run of a family reads its data with, as if its files were in the folder.
struct RunTokenizer {
  text::TokenizerOptions options;
  // Files that the folder does not have ("tokenizer/vocab.txt"), and how many ids the tokenizer then has.
  std::vector<store::ExtraFile> made_files = {};
  int64_t num_ids = 0;
};
using RunTokenizerOf = std::function<std::optional<RunTokenizer>(const std::filesystem::path& folder)>;

struct FoundTokenizer {
  text::TokenizerOptions options;       // as if the files were in `kept_in`
  std::vector<store::ExtraFile> files;  // "tokenizer/tokenizer.json", ...: every file of a tokenizer that exists
  int64_t vocab_size = 0;               // its ids, of which the model has rows; `rows` where no tokenizer could be read
  int64_t num_rows = 0;                 // that the embedding needs
  std::vector<std::string> notes;
};

// What a folder with a model of `rows` token ids holds: tokenizer.json, or vocab.json and merges.txt, or
// tokenizer.model; else a NullTokenizer with that many ids. What `of_family` finds comes before these.
FoundTokenizer find_tokenizer(const std::filesystem::path& folder, int64_t rows, const std::filesystem::path& kept_in,
                              const RunTokenizerOf& of_family = {});

}  // namespace espalier::convert
