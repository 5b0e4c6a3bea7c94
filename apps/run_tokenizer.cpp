#include "run_tokenizer.h"

#include <filesystem>

namespace espalier {

std::unique_ptr<text::Tokenizer> load_run_tokenizer(const plan::TokenizerConfig& config) {
  const bool is_gpt2 = config.tokenizer_type == "GPT2BPETokenizer";
  const std::vector<std::string> files = is_gpt2 ? std::vector<std::string>{config.vocab_file, config.merge_file}
                                                 : std::vector<std::string>{config.tokenizer_name_or_path};
  for (const std::string& file : files)
    if (file.empty() || !std::filesystem::exists(file)) return nullptr;
  return text::load_tokenizer(
      {config.tokenizer_type, config.vocab_file, config.merge_file, config.tokenizer_name_or_path});
}

}  // namespace espalier
