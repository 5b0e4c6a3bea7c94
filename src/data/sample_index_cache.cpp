#include "data/sample_index_cache.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "data/internal/array_cache.h"

namespace espalier::data {
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
  const std::filesystem::path stem = internal::cache_stem(folder_, request.name, key);
  SampleIndex index(sizes, request);
  if (internal::is_cached(stem)) {
    try {
      internal::load_cached(stem, key, arrays_of(index));
      return index;
    } catch (const UserError& error) {
      log_warning("the stored sample index of ", request.name, " cannot be used and is rebuilt: ", error.what());
      index = SampleIndex(sizes, request);
    }
  }
  index.fill(request);
  internal::store_cached(stem, key, arrays_of(index));
  return index;
}

std::vector<internal::CachedArray> SampleIndexCache::arrays_of(SampleIndex& index) {
  return {
      {"_doc_idx.npy", &index.documents_}, {"_sample_idx.npy", &index.starts_}, {"_shuffle_idx.npy", &index.order_}};
}

}  // namespace espalier::data
