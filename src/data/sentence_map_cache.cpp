#include "data/sentence_map_cache.h"

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"
#include "data/internal/array_cache.h"

namespace espalier::data {

uint64_t hash_of_sentences(const Sentences& sentences, const DocumentRange& documents) {
  const int64_t first = sentences.documents[documents.begin], last = sentences.documents[documents.end];
  Hasher hasher;
  hasher.update(sentences.documents.address(documents.begin), static_cast<size_t>(documents.size() + 1) * 8);
  hasher.update(sentences.sizes.address(first), static_cast<size_t>(last - first) * 4);
  return hasher.digest();
}

std::string SentenceMapCache::key(const Sentences& sentences, const SentenceMapRequest& request) {
  return concat("sentence map, format 1\ndocuments: ", request.documents.begin, " to ", request.documents.end,
                "\nsentences: xxh3 ", hex64(hash_of_sentences(sentences, request.documents)),
                "\nlongest sample: ", request.max_length,
                "\nshare of short samples: ", format_shortest(request.short_probability),
                "\nfewest sentences: ", request.min_sentences, "\nsamples asked for: ", request.num_samples,
                "\nseed: ", request.seed, "\n");
}

SentenceMap SentenceMapCache::load_or_build(const Sentences& sentences, const SentenceMapRequest& request) const {
  if (folder_.empty()) return SentenceMap::build(sentences, request);
  SentenceMap map(sentences, request);  // has read the marks, so that the key can be made
  const std::string key = SentenceMapCache::key(sentences, request);
  const std::filesystem::path stem = internal::cache_stem(folder_, request.name, key);
  const auto array = [&] { return std::vector<internal::CachedArray>{{"_sentence_map.npy", &map.rows_}}; };
  map.rows_ = IndexArray(SentenceMap::type_of(sentences), 0, 3);
  if (internal::is_cached(stem)) {
    try {
      internal::load_cached(stem, key, array());
      return map;
    } catch (const UserError& error) {
      log_warning("the stored sentence map of ", request.name, " cannot be used and is rebuilt: ", error.what());
    }
  }
  map.fill(sentences, request);
  internal::store_cached(stem, key, array());
  return map;
}

}  // namespace espalier::data
