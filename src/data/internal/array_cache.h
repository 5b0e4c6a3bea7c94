// Index arrays that --data-cache-path keeps between runs: .npy files under a common stem, and <stem>.txt, which says
// what they were made from and holds their checksums. The .txt is written last: without it nothing is kept. Several
// processes may store the same arrays at once; each file appears whole.
//
// Nothing waits for the disk. A power cut may leave files that are short or hold something else: their checksums are
// compared whenever they are loaded, and what does not match is built again.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/index_array.h"

namespace espalier::data::internal {

struct CachedArray {
  const char* suffix;  // of the file: "_doc_idx.npy"
  IndexArray* array;
};

// FOLDER/NAME_<hash of `key`>. The key is a text that says all that decides the arrays.
std::filesystem::path cache_stem(const std::filesystem::path& folder, const std::string& name, const std::string& key);

bool is_cached(const std::filesystem::path& stem);

// Maps the files; their types and shapes must be those of the arrays, of which one with 0 rows takes as many rows as
// its file holds. Throws a UserError with expected and found.
void load_cached(const std::filesystem::path& stem, const std::string& key, const std::vector<CachedArray>& arrays);

void store_cached(const std::filesystem::path& stem, const std::string& key, const std::vector<CachedArray>& arrays);

}  // namespace espalier::data::internal
