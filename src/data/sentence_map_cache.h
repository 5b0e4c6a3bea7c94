// Keeps sentence maps of --data-cache-path between runs, as data/sample_index_cache.h keeps sample indices:
// NAME_<hash>_sentence_map.npy, which is upstream's array, and NAME_<hash>.txt. The hash covers all that decides the
// map, the sizes of the sentences and the ends of the documents included (upstream's names hold no split, and it
// rereads a stale file).
#pragma once

#include <filesystem>
#include <string>

#include "data/sentence_map.h"

namespace espalier::data {

class SentenceMapCache {
 public:
  // An empty folder name: nothing is kept. The folder is created when the first map is stored.
  explicit SentenceMapCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // The stored map if it is whole, else a new one, which is then stored. Says so when a file could not be used.
  SentenceMap load_or_build(const Sentences& sentences, const SentenceMapRequest& request) const;

 private:
  // What the map depends on, as text.
  static std::string key(const Sentences& sentences, const SentenceMapRequest& request);

  std::filesystem::path folder_;
};

// Of the sizes of the sentences and the ends of the documents in the range.
uint64_t hash_of_sentences(const Sentences& sentences, const DocumentRange& documents);

}  // namespace espalier::data
