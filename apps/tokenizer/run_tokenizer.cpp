#include "apps/tokenizer/run_tokenizer.h"

#include <filesystem>

namespace espalier {

std::unique_ptr<text::Tokenizer> load_run_tokenizer(const config::TokenizerConfig& config) {
  const text::TokenizerOptions& options = config;
  Problems problems;
  text::check_options(options, problems);
  if (!problems.empty()) return nullptr;
  for (const std::string& file : text::files_of(options))
    if (!std::filesystem::exists(file)) return nullptr;
  return text::load_tokenizer(options);
}

}  // namespace espalier
