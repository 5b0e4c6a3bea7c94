#include "data/token_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/lfs_pointer.h"

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

std::string first_bytes(const std::string& path, size_t count) {
  std::string bytes(count, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  bytes.resize(static_cast<size_t>(file.gcount()));
  return bytes;
}

std::optional<std::string> describe_pointer(const std::string& path) {
  return describe_lfs_pointer(path, first_bytes(path, 1024));
}

bool ends_with_one_of(const std::string& text, const std::vector<std::string>& endings) {
  return std::any_of(endings.begin(), endings.end(), [&](const std::string& one) { return text.ends_with(one); });
}

std::string name_list(const std::vector<std::string>& names) {
  const size_t shown = std::min<size_t>(names.size(), 5);
  return concat(join({names.begin(), names.begin() + static_cast<int64_t>(shown)}, ", "),
                names.size() > shown ? concat(" and ", names.size() - shown, " more") : "");
}

// A folder given for a prefix.
std::string describe_folder(const std::string& folder) {
  const std::vector<std::string> inside = prefixes_beside(std::filesystem::path(folder) / "any");
  if (inside.empty())
    return concat("'", folder, "' is a folder without a token file (.bin with .idx). Make them with 'espalier ",
                  "preprocess'.");
  return concat("'", folder, "' is a folder. Give a data set in it, without .bin or .idx: ", name_list(inside));
}

// A file given for a prefix: text is what people have.
std::string describe_other_file(const std::string& path) {
  if (const auto pointer = describe_pointer(path)) return *pointer;
  const std::string start = first_bytes(path, 256);
  const size_t first = start.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  const bool is_json = first != std::string::npos && (start[first] == '{' || start[first] == '[');
  const std::string packed = "\x1f\x8b", zstd = "\x28\xb5\x2f\xfd",
                    xz = "\xfd"
                         "7zXZ";
  const bool is_packed = start.starts_with(packed) || start.starts_with(zstd) || start.starts_with(xz);
  const std::string tokens = "training reads token files (.bin with .idx)";
  if (is_json || is_packed || ends_with_one_of(path, {".jsonl", ".json"})) {
    std::string stem = path;
    for (const char* ending : {".gz", ".zst", ".xz", ".jsonl", ".json"})
      if (stem.ends_with(ending)) stem.resize(stem.size() - std::string_view(ending).size());
    return concat("'", path, "' is ", is_packed ? "packed text" : "text (JSON)", "; ", tokens,
                  ". Make them with: espalier preprocess --input '", path, "' --output-prefix '", stem,
                  "' --append-eod --tokenizer-type ...; then give '", stem, "_text_document'.");
  }
  const std::string what = start.empty()                 ? "an empty file"
                           : start.starts_with("PAR1")   ? "a Parquet file"
                           : start.starts_with("ARROW1") ? "an Arrow file"
                                                         : "a file";
  return concat("'", path, "' is ", what, "; ", tokens,
                ", named by what their names share. Write text as lines {\"text\": \"...\"} and run 'espalier "
                "preprocess'.");
}

// "owner/name", as the Hugging Face Hub has it.
bool may_be_of_hub(const std::string& prefix) {
  return std::count(prefix.begin(), prefix.end(), '/') == 1 && prefix.front() != '/' && prefix.front() != '.' &&
         prefix.front() != '~' && prefix.back() != '/';
}

}  // namespace

std::optional<TokenFiles> find_token_files(const std::string& prefix) {
  const std::string index = prefix + ".idx", tokens = prefix + ".bin";
  if (is_file(index) && is_file(tokens)) return TokenFiles{index, tokens, ""};
  const std::string long_index = prefix + ".bin.idx", long_tokens = prefix + ".bin.bin";
  if (is_file(tokens) && is_file(long_index) && !is_file(index))
    return TokenFiles{long_index, tokens,
                      concat("the index of '", prefix, "' is called '", long_index, "'; fix it with: mv '", long_index,
                             "' '", index, "'")};
  if (is_file(long_tokens) && is_file(long_index) && !is_file(tokens) && !is_file(index))
    return TokenFiles{long_index, long_tokens,
                      concat("'", prefix, "' was made with the prefix '", tokens, "'; fix it with: mv '", long_tokens,
                             "' '", tokens, "'; mv '", long_index, "' '", index, "'")};
  if (is_file(index) || is_file(tokens)) return std::nullopt;  // half of it: not the time to guess
  if (const std::optional<std::string> other = respelt(prefix))
    return TokenFiles{*other + ".idx", *other + ".bin",
                      concat("there is no '", prefix, ".idx'; '", *other,
                             "', whose name differs only in '-' and '_', is read instead")};
  return std::nullopt;
}

std::string describe_no_file(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::regular) return "";
  if (const std::string kind = kind_of_no_file(status.type()); !kind.empty()) return kind;
  std::error_code ignored;
  if (std::filesystem::is_symlink(std::filesystem::symlink_status(path, ignored)))
    return concat("a link to '", std::filesystem::read_symlink(path, ignored).string(), "', which ",
                  status.type() == std::filesystem::file_type::not_found
                      ? "does not exist"
                      : concat("cannot be followed: ", error.message()));
  return status.type() == std::filesystem::file_type::not_found ? "" : concat("out of reach: ", error.message());
}

std::string describe_missing(const std::string& prefix) {
  if (prefix.empty()) return "an empty name of a data set; give the prefix of its .bin and .idx";
  const std::filesystem::path path(prefix);
  if ((path.extension() == ".idx" || path.extension() == ".bin") && is_file(prefix))
    return concat("'", prefix, "' is a file. Give the prefix without ", path.extension().string(), ".");
  for (const char* suffix : {".idx", ".bin"})
    if (const std::string what = describe_no_file(prefix + suffix); !what.empty())
      return concat("'", prefix, suffix, "' is ", what, ". Token files are regular files; copy or recreate it.");
  for (const char* suffix : {".idx", ".bin"})
    if (is_file(prefix + (std::string(suffix) == ".idx" ? ".bin" : ".idx")))
      return concat("'", prefix, suffix, "' is missing next to its other half. Run 'espalier preprocess' again.");
  const std::string other = describe_no_file(prefix);
  if (other == "a folder") return describe_folder(prefix);
  if (!other.empty()) return concat("'", prefix, "' is ", other, ". Give the prefix of token files (.bin with .idx).");
  if (is_file(prefix)) return describe_other_file(prefix);
  std::string message = concat("there is no '", prefix, ".idx'");
  std::error_code ignored;
  if (path.has_parent_path() && !std::filesystem::is_directory(path.parent_path(), ignored))
    return message + concat("; the folder '", path.parent_path().string(), "' does not exist",
                            may_be_of_hub(prefix)
                                ? ". A data set of the Hugging Face Hub is not downloaded: save it as lines {\"text\": "
                                  "\"...\"}, and run 'espalier preprocess'"
                                : "");
  const std::vector<std::string> beside = prefixes_beside(path);
  const std::vector<std::string> nearest = nearest_names(prefix, beside, /*max_distance=*/6);
  if (!nearest.empty()) return message + concat(". Did you mean '", join(nearest, "' or '"), "'?");
  if (beside.empty()) return message + ", nor any other token file in that folder";
  return message + concat(". That folder holds ", name_list(beside));
}

void refuse_git_lfs_pointers(const TokenFiles& files) {
  for (const std::string& path : {files.index, files.tokens})
    if (const auto pointer = describe_pointer(path)) throw UserError(*pointer, ExitCode::kBadData);
}

std::vector<std::filesystem::path> files_written_for(const std::string& prefix) {
  return {prefix + ".bin", prefix + ".idx"};
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
