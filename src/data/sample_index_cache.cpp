#include "data/sample_index_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"

namespace espalier::data {
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

constexpr const char* kSuffixes[] = {"_doc_idx.npy", "_sample_idx.npy", "_shuffle_idx.npy"};

}  // namespace

std::string SampleIndexCache::key(const DocumentSizes& sizes, const SampleRequest& request) {
  const uint64_t hash =
      hash64(sizes.address(request.documents.begin), static_cast<size_t>(request.documents.size()) * 4);
  return concat("sample index, format 1\ndocuments: ", request.documents.begin, " to ", request.documents.end,
                "\nsizes of documents: xxh3 ", hex64(hash), "\nsequence length: ", request.sequence_length,
                "\nsamples asked for: ", request.num_samples, "\nseed: ", request.seed, "\n");
}

SampleIndex SampleIndexCache::load_or_build(const DocumentSizes& sizes, const SampleRequest& request) const {
  if (folder_.empty()) return SampleIndex::build(sizes, request);
  const std::string key = SampleIndexCache::key(sizes, request);
  const std::filesystem::path stem = folder_ / concat(file_name_of(request.name), "_", hex64(hash64(key)));
  SampleIndex index(sizes, request);
  if (std::filesystem::exists(with_suffix(stem, ".txt"))) {
    try {
      load(index, stem, key);
      return index;
    } catch (const UserError& error) {
      log_warning("the stored sample index of ", request.name, " cannot be used and is built again: ", error.what());
      index = SampleIndex(sizes, request);
    }
  }
  index.fill(request);
  store(index, stem, key);
  return index;
}

void SampleIndexCache::load(SampleIndex& index, const std::filesystem::path& stem, const std::string& key) const {
  IndexArray* arrays[] = {&index.documents_, &index.starts_, &index.order_};
  std::string expected = key;
  for (size_t at = 0; at < 3; ++at) {
    IndexArray& array = *arrays[at];
    array = IndexArray::map_npy(with_suffix(stem, kSuffixes[at]), array.type(), array.rows(), array.columns());
    expected += checksum_line(kSuffixes[at], array);
  }
  if (read_file(with_suffix(stem, ".txt")) != expected)
    throw UserError(
        concat("'", with_suffix(stem, ".txt").string(), "': checksums or origin differ from the arrays beside it"),
        ExitCode::kBadData);
}

void SampleIndexCache::store(const SampleIndex& index, const std::filesystem::path& stem,
                             const std::string& key) const {
  std::filesystem::create_directories(folder_);
  // Another rank may be storing the same index: each writes files of its own and renames them.
  const std::string own = concat(".", ::getpid(), ".part");
  const IndexArray* arrays[] = {&index.documents_, &index.starts_, &index.order_};
  std::string text = key;
  for (size_t at = 0; at < 3; ++at) {
    const std::filesystem::path path = with_suffix(stem, kSuffixes[at]);
    arrays[at]->write_npy(path.string() + own);
    std::filesystem::rename(path.string() + own, path);
    text += checksum_line(kSuffixes[at], *arrays[at]);
  }
  const std::filesystem::path description = with_suffix(stem, ".txt");
  OutputFile file(description.string() + own);
  file.write(text.data(), text.size());
  file.sync();
  file.close();
  std::filesystem::rename(description.string() + own, description);
  fsync_directory(folder_);
}

}  // namespace espalier::data
