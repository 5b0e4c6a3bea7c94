// How a data set was made: `<prefix>.meta.json`, next to the .idx.
//
// Upstream's files do not record which tokenizer made them, and ids of another tokenizer train without an error.
// preprocess and merge write the file; inspect shows it; train compares its tokenizer with the run's. A data set
// without one is as good as any. One that is left over from an earlier data set of the name is recognized by the sizes
// of the files and ignored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/token_files.h"
#include "text/tokenizer.h"

namespace espalier::data {

struct TokenizerFacts {
  std::string description;  // for people
  std::string fingerprint;  // text::fingerprint(), 16 digits
  int64_t vocab_size = 0;
  std::optional<int32_t> eod;
  // The words of a command line that name it, its files by absolute paths: {"--tokenizer-type", "PretrainedFromHF",
  // ...}. Empty where they were not recorded.
  std::vector<std::string> words;

  static TokenizerFacts of(const text::Tokenizer& tokenizer);
  bool same_as(const TokenizerFacts& other) const { return fingerprint == other.fingerprint; }
};

struct StoreMetadata {
  std::string program;                      // "espalier 0.1.0"
  std::optional<TokenizerFacts> tokenizer;  // not set where merged data sets differ or do not say
  int64_t num_documents = 0, num_sequences = 0, num_tokens = 0;
  // What it was made of, in the order of the command line: ("--append-eod", "true"), ("malformed", "3").
  std::vector<std::pair<std::string, std::string>> options;
};

// "data/wiki.meta.json"
std::string metadata_path(const TokenFiles& files);

// Atomically, after the token files themselves.
void write_metadata(const std::string& prefix, const StoreMetadata& metadata);

// Nothing where there is none; one that cannot be read or that belongs to other files is remarked on and ignored.
std::optional<StoreMetadata> read_metadata(const TokenFiles& files);

// A line for each data set that another tokenizer made than the first that says.
std::vector<std::string> describe_differing_tokenizers(const std::vector<std::string>& prefixes);

// A line for each data set whose metadata names another tokenizer than this, or than this without --vocab-extra-ids.
// What does not exist is skipped.
std::vector<std::string> describe_other_tokenizers(const std::vector<std::string>& prefixes,
                                                   const text::Tokenizer& tokenizer);

}  // namespace espalier::data
