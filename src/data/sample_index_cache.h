// Keeps sample indices of --data-cache-path between runs.
//
// An index is three .npy files, as upstream's but under names of our own: NAME_<hash>_{doc,sample,shuffle}_idx.npy,
// and NAME_<hash>.txt, which says what they were made from and holds their checksums. The hash covers all that decides
// the content, the sizes of the documents included; so another split, range or a rebuilt token file gives another name
// (upstream's names hold neither split nor range, and it rereads a stale file). The .txt is written last: without it
// there is no index. Several processes may build the same index at once; each file appears whole.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/sample_index.h"

namespace espalier::data {

namespace internal {
struct CachedArray;
}

class SampleIndexCache {
 public:
  // An empty folder name: nothing is kept. The folder is created when the first index is stored.
  explicit SampleIndexCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // The stored index if all of its files are whole, else a new one, which is then stored. Says so when files were
  // there but could not be used.
  SampleIndex load_or_build(const DocumentSizes& sizes, const SampleRequest& request) const;

 private:
  // What the index depends on, as text.
  static std::string key(const DocumentSizes& sizes, const SampleRequest& request);
  static std::vector<internal::CachedArray> arrays_of(SampleIndex& index);

  std::filesystem::path folder_;
};

}  // namespace espalier::data
