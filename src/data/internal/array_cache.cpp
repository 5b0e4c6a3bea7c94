#include "data/internal/array_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <future>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/thread_pool.h"

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

std::string checksum_line(const char* suffix, const IndexArray& array, uint64_t hash) {
  return concat(suffix, ": ", array.rows(), " rows, xxh3 ", hex64(hash), "\n");
}

// Calls `work` for each array, large ones at once, and joins the lines that it gives.
template <class Work>
std::string lines_of(const std::vector<CachedArray>& arrays, int64_t bytes, Work work) {
  constexpr int64_t kBytesOfAThread = 4 << 20;
  const auto most = std::min<int64_t>(num_usable_cores(), static_cast<int64_t>(arrays.size()));
  const auto num_threads = static_cast<int>(std::min(most, bytes / kBytesOfAThread));
  std::string text;
  if (num_threads <= 1) {
    for (const CachedArray& array : arrays) text += work(array);
    return text;
  }
  std::vector<std::future<std::string>> lines;
  ThreadPool threads(num_threads);  // waits for all of them
  for (const CachedArray& array : arrays) lines.push_back(threads.submit([&work, &array] { return work(array); }));
  for (auto& line : lines) text += line.get();
  return text;
}

int64_t bytes_of(const std::vector<CachedArray>& arrays) {
  size_t bytes = 0;
  for (const auto& [suffix, array] : arrays) bytes += array->size_bytes();
  return static_cast<int64_t>(bytes);
}

}  // namespace

std::filesystem::path cache_stem(const std::filesystem::path& folder, const std::string& name, const std::string& key) {
  return folder / concat(file_name_of(name), "_", hex64(hash64(key)));
}

bool is_cached(const std::filesystem::path& stem) { return std::filesystem::exists(with_suffix(stem, ".txt")); }

void load_cached(const std::filesystem::path& stem, const std::string& key, const std::vector<CachedArray>& arrays) {
  for (const auto& [suffix, array] : arrays) {
    const std::filesystem::path file = with_suffix(stem, suffix);
    const int64_t rows =
        array->rows() > 0 ? array->rows() : IndexArray::rows_of_npy(file, array->type(), array->columns());
    *array = IndexArray::map_npy(file, array->type(), rows, array->columns());
  }
  const std::string lines = lines_of(arrays, bytes_of(arrays), [](const CachedArray& cached) {
    return checksum_line(cached.suffix, *cached.array, hash64(cached.array->data(), cached.array->size_bytes()));
  });
  if (read_file(with_suffix(stem, ".txt")) != key + lines)
    throw UserError(
        concat("'", with_suffix(stem, ".txt").string(), "': checksums or origin differ from the arrays next to it"),
        ExitCode::kBadData);
}

void store_cached(const std::filesystem::path& stem, const std::string& key, const std::vector<CachedArray>& arrays) {
  const std::filesystem::path folder = stem.parent_path();
  std::filesystem::create_directories(folder);
  // Another rank may be storing the same arrays: each writes files of its own and renames them.
  const std::string own = concat(".", ::getpid(), ".part");
  const std::string lines = lines_of(arrays, bytes_of(arrays), [&](const CachedArray& cached) {
    const std::filesystem::path path = with_suffix(stem, cached.suffix);
    const uint64_t hash = cached.array->write_npy(path.string() + own);
    std::filesystem::rename(path.string() + own, path);
    return checksum_line(cached.suffix, *cached.array, hash);
  });
  const std::filesystem::path description = with_suffix(stem, ".txt");
  OutputFile file(description.string() + own);
  file.write(key.data(), key.size());
  file.write(lines.data(), lines.size());
  file.close();
  std::filesystem::rename(description.string() + own, description);
}

}  // namespace espalier::data::internal
