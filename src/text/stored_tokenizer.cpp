#include "text/stored_tokenizer.h"

#include "base/error.h"

namespace espalier::text {

std::unique_ptr<Tokenizer> load_stored_tokenizer(const TokenizerOptions& options, const std::filesystem::path& folder) {
  std::error_code error;
  const TokenizerOptions stored = moved_to(options, folder);
  if (!files_of(stored).empty() && !std::filesystem::exists(folder, error))
    throw UserError(concat("the checkpoint '", folder.parent_path().string(), "' has no tokenizer: there is no '",
                           folder.string(), "'. Copy that folder from another checkpoint of the run, or import the ",
                           "model again with the files of its tokenizer."),
                    ExitCode::kMissingInput);
  return load_tokenizer(stored);
}

}  // namespace espalier::text
