#include "data/internal/array_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace espalier::data::internal {
namespace {

std::filesystem::path with_suffix(const std::filesystem::path& stem, const std::string& suffix) {
  return stem.string() + suffix;
}

// A name for people that is safe in a file name.
std::string file_name_of(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c) && c != '.' && c != '-'; }, '_');
  return name;
}

std::string checksum_line(const char* suffix, const IndexArray& array) {
  return concat(suffix, ": ", array.rows(), " rows, xxh3 ", hex64(hash64(array.data(), array.size_bytes())), "\n");
}

}  // namespace

std::filesystem::path cache_stem(const std::filesystem::path& folder, const std::string& name, const std::string& key) {
  return folder / concat(file_name_of(name), "_", hex64(hash64(key)));
}

bool is_cached(const std::filesystem::path& stem) { return std::filesystem::exists(with_suffix(stem, ".txt")); }

void load_cached(const std::filesystem::path& stem, const std::string& key, const std::vector<CachedArray>& arrays) {
  std::string expected = key;
  for (const auto& [suffix, array] : arrays) {
    const std::filesystem::path file = with_suffix(stem, suffix);
    const int64_t rows =
        array->rows() > 0 ? array->rows() : IndexArray::rows_of_npy(file, array->type(), array->columns());
    *array = IndexArray::map_npy(file, array->type(), rows, array->columns());
    expected += checksum_line(suffix, *array);
  }
  if (read_file(with_suffix(stem, ".txt")) != expected)
    throw UserError(
        concat("'", with_suffix(stem, ".txt").string(), "': checksums or origin differ from the arrays next to it"),
        ExitCode::kBadData);
}

void store_cached(const std::filesystem::path& stem, const std::string& key, const std::vector<CachedArray>& arrays) {
  const std::filesystem::path folder = stem.parent_path();
  std::filesystem::create_directories(folder);
  // Another rank may be storing the same arrays: each writes files of its own and renames them.
  const std::string own = concat(".", ::getpid(), ".part");
  std::string text = key;
  for (const auto& [suffix, array] : arrays) {
    const std::filesystem::path path = with_suffix(stem, suffix);
    array->write_npy(path.string() + own);
    std::filesystem::rename(path.string() + own, path);
    text += checksum_line(suffix, *array);
  }
  const std::filesystem::path description = with_suffix(stem, ".txt");
  OutputFile file(description.string() + own);
  file.write(text.data(), text.size());
  file.sync();
  file.close();
  std::filesystem::rename(description.string() + own, description);
  fsync_directory(folder);
}

}  // namespace espalier::data::internal
