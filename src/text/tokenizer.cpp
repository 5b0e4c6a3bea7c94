#include "text/tokenizer.h"

#include "base/error.h"
#include "base/format.h"
#include "text/gpt2_tokenizer.h"

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
  problems.add("--tokenizer-type ", options.type.empty() ? "is missing" : "'" + options.type + "' is not known",
               "; use GPT2BPETokenizer or PretrainedFromHF");
  problems.raise();
  ESPALIER_CHECK(false, "raise() returned");
}

}  // namespace espalier::text
