#include "text/tokenizer.h"

#include "base/error.h"
#include "base/format.h"
#include "text/gpt2_tokenizer.h"
#include "text/hf_tokenizer.h"

namespace espalier::text {

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  new_encoder()->encode(text, ids);
  return ids;
}

std::unique_ptr<Tokenizer> load_tokenizer(const TokenizerOptions& options) {
  Problems problems;
  if (options.type == "GPT2BPETokenizer") {
    if (options.vocab_file.empty()) problems.add("--tokenizer-type GPT2BPETokenizer needs --vocab-file (vocab.json)");
    if (options.merge_file.empty()) problems.add("--tokenizer-type GPT2BPETokenizer needs --merge-file (merges.txt)");
    problems.raise();
    return load_gpt2_tokenizer(options.vocab_file, options.merge_file);
  }
  if (options.type == "PretrainedFromHF") {
    if (options.name_or_path.empty()) {
      problems.add("--tokenizer-type PretrainedFromHF needs --tokenizer-name-or-path (tokenizer.json or its folder)");
    }
    problems.raise();
    return load_hf_tokenizer(options.name_or_path);
  }
  problems.add("--tokenizer-type ", options.type.empty() ? "is missing" : "'" + options.type + "' is not known",
               "; use GPT2BPETokenizer or PretrainedFromHF");
  problems.raise();
  ESPALIER_CHECK(false, "raise() returned");
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::filesystem::path& path) {
  const bool is_folder = std::filesystem::is_directory(path);
  const std::filesystem::path vocabulary = is_folder ? path / "vocab.json" : path;
  if (is_folder && std::filesystem::exists(path / "tokenizer.json")) return load_hf_tokenizer(path);
  if (vocabulary.filename() != "vocab.json") return load_hf_tokenizer(path);
  return load_gpt2_tokenizer(vocabulary, vocabulary.parent_path() / "merges.txt");
}

}  // namespace espalier::text
