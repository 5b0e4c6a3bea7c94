// How similar two sets of shingles are.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace espalier::curate {

using ShingleSet = std::vector<uint64_t>;  // sorted, each once

ShingleSet to_set(std::vector<uint64_t> hashes);

// OpenWebText's: windows of 5 characters, without the last one; empty for texts of at most 5 characters. Valid UTF-8.
ShingleSet openwebtext_shingles(std::string_view text);

enum class JaccardDivisor { kUnion, kMin, kMax };

// The size of the intersection over that of the union, the smaller or the larger set; 0 where one is empty. O(a + b).
double jaccard(const ShingleSet& a, const ShingleSet& b, JaccardDivisor divisor);

}  // namespace espalier::curate
