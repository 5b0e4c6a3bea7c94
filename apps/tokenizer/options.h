// The rows that name a tokenizer, for every command that needs one.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/options.h"
#include "text/tokenizer.h"

namespace espalier {

// --tokenizer-type, --vocab-file, --merge-file, --tokenizer-name-or-path. Returns the row of --tokenizer-type, so that
// a command can require it.
Option& add_tokenizer_options(OptionTable& table, text::TokenizerOptions& options);

// Adds `what_works` if a word was found where options are expected.
void explain_unexpected_words(Problems& problems, const std::string& what_works);

// Null, with the reason among the problems, if it cannot be loaded; `code` is that of the reason, unless it is null.
std::unique_ptr<text::Tokenizer> load_tokenizer(const text::TokenizerOptions& options, Problems& problems,
                                                ExitCode* code = nullptr);

// The options as words of a command line, files by absolute paths: for the metadata of a data set.
std::vector<std::string> words_of(const text::TokenizerOptions& options);

// The tokenizer that such words name, where its files are still there or are in `folder` now, and where it has that
// fingerprint; else null, and `reason` says why.
std::unique_ptr<text::Tokenizer> find_tokenizer(const std::vector<std::string>& words, const std::string& fingerprint,
                                                const std::filesystem::path& folder, std::string& reason);

}  // namespace espalier
