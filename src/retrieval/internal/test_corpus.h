// For the tests of this library: small token files, and their documents in memory.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "data/token_store.h"
#include "retrieval/internal/test_folder.h"

namespace espalier::retrieval::test_corpus {

inline constexpr int32_t kEnd = 99;
using Documents = std::vector<std::vector<int32_t>>;

// Documents of these lengths, of ids below 99 and, where `ends`, one more that ends them.
inline Documents random_documents(const std::vector<int64_t>& lengths, uint32_t seed, bool ends = true) {
  std::mt19937 generator(seed);
  Documents documents;
  for (const int64_t length : lengths) {
    documents.emplace_back();
    for (int64_t at = 0; at < length; ++at) documents.back().push_back(static_cast<int32_t>(generator() % 99));
    if (ends) documents.back().push_back(kEnd);
  }
  return documents;
}

inline void write_documents(const std::string& prefix, const Documents& documents) {
  data::TokenStoreWriter writer(prefix, data::token_type_for(100));
  for (const std::vector<int32_t>& document : documents) {
    writer.add_sequence(document);
    writer.end_document();
  }
  writer.finish();
}

}  // namespace espalier::retrieval::test_corpus
