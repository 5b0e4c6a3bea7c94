#include "data/token_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/error.h"
#include "base/format.h"

namespace espalier::data {
namespace {

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

// Prefixes of the indices in the folder of `prefix`, spelt as the user spells it.
std::vector<std::string> prefixes_beside(const std::filesystem::path& prefix) {
  std::vector<std::string> found;
  std::error_code error;
  const std::filesystem::path folder = prefix.has_parent_path() ? prefix.parent_path() : ".";
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().extension() == ".idx") found.push_back((prefix.parent_path() / entry->path().stem()).string());
  std::sort(found.begin(), found.end());
  return found;
}

std::string with_underscores(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// The one set of the folder whose name differs from that of `prefix` in '-' and '_' alone.
std::optional<std::string> respelt(const std::string& prefix) {
  const std::filesystem::path path(prefix);
  const std::string wanted = with_underscores(path.filename().string());
  if (wanted.empty()) return std::nullopt;
  std::optional<std::string> only;
  for (const std::string& other : prefixes_beside(path)) {
    if (with_underscores(std::filesystem::path(other).filename().string()) != wanted) continue;
    if (!is_file(other + ".bin")) continue;
    if (only) return std::nullopt;
    only = other;
  }
  return only;
}

}  // namespace

std::optional<TokenFiles> find_token_files(const std::string& prefix) {
  const std::string index = prefix + ".idx", tokens = prefix + ".bin";
  if (is_file(index) && is_file(tokens)) return TokenFiles{index, tokens, ""};
  const std::string long_index = prefix + ".bin.idx", long_tokens = prefix + ".bin.bin";
  if (is_file(tokens) && is_file(long_index) && !is_file(index))
    return TokenFiles{long_index, tokens,
                      concat("the index of '", prefix, "' is called '", long_index, "'; mend it with: mv '", long_index,
                             "' '", index, "'")};
  if (is_file(long_tokens) && is_file(long_index) && !is_file(tokens) && !is_file(index))
    return TokenFiles{long_index, long_tokens,
                      concat("'", prefix, "' was made with the prefix '", tokens, "'; mend it with: mv '", long_tokens,
                             "' '", tokens, "'; mv '", long_index, "' '", index, "'")};
  if (is_file(index) || is_file(tokens)) return std::nullopt;  // half of it: not the time to guess
  if (const std::optional<std::string> other = respelt(prefix))
    return TokenFiles{*other + ".idx", *other + ".bin",
                      concat("there is no '", prefix, ".idx'; '", *other,
                             "', whose name differs in '-' and '_' alone, is read instead")};
  return std::nullopt;
}

std::string describe_missing(const std::string& prefix) {
  const std::filesystem::path path(prefix);
  if ((path.extension() == ".idx" || path.extension() == ".bin") && is_file(prefix))
    return concat("'", prefix, "' is a file. Give the prefix without ", path.extension().string(), ".");
  for (const char* suffix : {".idx", ".bin"})
    if (is_file(prefix + (std::string(suffix) == ".idx" ? ".bin" : ".idx")))
      return concat("'", prefix, suffix, "' is missing beside its other half. Run 'espalier preprocess' again.");
  std::string message = concat("there is no '", prefix, ".idx'");
  std::error_code ignored;
  if (path.has_parent_path() && !std::filesystem::is_directory(path.parent_path(), ignored))
    return message + concat("; the folder '", path.parent_path().string(), "' does not exist");
  const std::vector<std::string> beside = prefixes_beside(path);
  const std::vector<std::string> nearest = nearest_names(prefix, beside, /*max_distance=*/6);
  if (!nearest.empty()) return message + concat(". Did you mean '", join(nearest, "' or '"), "'?");
  if (beside.empty()) return message + ", nor any other token file in that folder";
  const size_t shown = std::min<size_t>(beside.size(), 5);
  return message + concat(". That folder holds ",
                          join({beside.begin(), beside.begin() + static_cast<int64_t>(shown)}, ", "),
                          beside.size() > shown ? concat(" and ", beside.size() - shown, " more") : "");
}

std::string format_problem(const TokenFiles& files, const std::string& data_impl) {
  if (data_impl.empty() || data_impl == "infer") return "";
  char magic[8] = {};
  std::ifstream(files.index, std::ios::binary).read(magic, sizeof magic);
  const std::string found(magic, 6);
  const bool wants_mmap = data_impl == "mmap";
  if (found == (wants_mmap ? "TNTIDX" : "MMIDID"))
    return concat("--data-impl ", data_impl, ": '", files.index, "' is an index of the ",
                  wants_mmap ? "'lazy' or 'cached'" : "'mmap'", " format. Leave the option out, or give infer.");
  return "";  // what is neither is refused in words when it is opened
}

}  // namespace espalier::data
