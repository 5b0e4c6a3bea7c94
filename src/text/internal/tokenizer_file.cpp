#include "text/internal/tokenizer_file.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/lfs_pointer.h"

namespace espalier::text::internal {
namespace {

namespace fs = std::filesystem;

bool path_exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// "gpt2", "bigscience/bloom".
bool looks_like_hub_name(const fs::path& path) {
  const std::string name = path.string();
  const auto is_allowed = [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
           letter == '-' || letter == '_' || letter == '.' || letter == '/';
  };
  if (name.empty() || !std::all_of(name.begin(), name.end(), is_allowed)) return false;
  if (name.front() == '/' || name.front() == '.' || name.back() == '/') return false;
  if (std::count(name.begin(), name.end(), '/') > 1) return false;
  for (const char* extension : {".json", ".model", ".txt", ".tiktoken", ".bpe"})
    if (name.ends_with(extension)) return false;
  return true;
}

[[noreturn]] void refuse_missing(const fs::path& path) {
  if (looks_like_hub_name(path)) {
    throw UserError(
        concat("'", path.string(), "' is not a file or folder here, and nothing is downloaded at run time. If ",
               "it is a name on the Hugging Face Hub, download tokenizer.json and tokenizer_config.json ",
               "from https://huggingface.co/", path.string(), "/tree/main into a folder, and give that ", "folder."),
        ExitCode::kMissingInput);
  }
  const fs::path folder = path.parent_path();
  throw UserError(
      concat("cannot open '", path.string(), "': ",
             folder.empty() || path_exists(folder) ? "no such file"
                                                   : concat("the folder '", folder.string(), "' does not exist")),
      ExitCode::kMissingInput);
}

void refuse_lfs_pointer(const fs::path& path, std::string_view content) {
  if (const auto pointer = describe_lfs_pointer(path, content)) throw UserError(*pointer, ExitCode::kBadData);
}

void refuse_web_page(const fs::path& path, std::string_view content) {
  const size_t begin = std::min(content.find_first_not_of(" \t\r\n"), content.size());
  std::string head(content.substr(begin, 9));
  std::transform(head.begin(), head.end(), head.begin(),
                 [](unsigned char letter) { return static_cast<char>(letter < 128 ? std::tolower(letter) : letter); });
  if (head != "<!doctype" && !head.starts_with("<html")) return;
  throw UserError(concat("'", path.string(), "' is a web page. Download the file itself; on the Hugging Face Hub its ",
                         "address has /resolve/ where the page's has /blob/."),
                  ExitCode::kBadData);
}

// What else a folder can be used for.
std::string other_uses(const fs::path& folder) {
  const auto path = [&](const char* name) { return (folder / name).string(); };
  if (path_exists(folder / "vocab.json") && path_exists(folder / "merges.txt"))
    return concat("It can be used by --tokenizer-type GPT2BPETokenizer --vocab-file ", path("vocab.json"),
                  " --merge-file ", path("merges.txt"), ".");
  if (path_exists(folder / "tokenizer.model"))
    return concat("It can be used by --tokenizer-type GPTSentencePieceTokenizer --tokenizer-model ",
                  path("tokenizer.model"), ".");
  if (path_exists(folder / "vocab.txt"))
    return concat("It can be used by --tokenizer-type BertWordPieceLowerCase --vocab-file ", path("vocab.txt"), ".");
  return "Nor does it hold vocab.json and merges.txt, tokenizer.model or vocab.txt: download tokenizer.json and "
         "tokenizer_config.json of the model into it.";
}

}  // namespace

std::string read_tokenizer_file(const fs::path& path) {
  if (!path_exists(path)) refuse_missing(path);
  std::string content = read_file(path);
  refuse_lfs_pointer(path, content);
  refuse_web_page(path, content);
  return content;
}

fs::path tokenizer_json_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  if (path_exists(path / "tokenizer.json")) return path / "tokenizer.json";
  throw UserError(concat("the folder '", path.string(), "' holds no tokenizer.json. ", other_uses(path)),
                  ExitCode::kMissingInput);
}

}  // namespace espalier::text::internal
