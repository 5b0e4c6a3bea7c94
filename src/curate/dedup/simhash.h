// SimHash: 64 bits of a text, few of which differ between near-duplicates. As the OSCAR corpora were deduplicated
// for BLOOM: windows of 6 words of the lower-cased text without punctuation; texts are near where at most 4 bits
// differ.
//
// Each bit is the majority among the hashes of all windows. Pairs are found exactly, without comparing all: of 6 blocks
// of bits, two must be equal in full where at most 4 bits differ, so hashes are sorted by each of the 15 pairs of
// blocks. The original's hash of a window (Python's) is not reproduced: XXH3 takes its place.
// Charikar, Similarity estimation techniques from rounding algorithms, STOC 2002; Manku et al., Detecting
// near-duplicates for web crawling, WWW 2007.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace espalier::curate {

// The words that count: separated by blanks, lower-cased, without punctuation. Valid UTF-8.
std::vector<uint64_t> simhash_words(std::string_view text);

// The majority of each bit; a tie is 0. O(64 n).
uint64_t simhash_of(std::span<const uint64_t> hashes);

// Nothing for a text without words. With fewer than `window` words all of them are one window.
std::optional<uint64_t> simhash(std::string_view text, int64_t window);

// The bits of `blocks` blocks, the first ones one bit longer where 64 is no multiple.
std::vector<uint64_t> block_masks(int64_t blocks);

// For each choice of blocks - distance blocks, their bits: hashes that differ in at most `distance` bits are equal
// under one of them. distance < blocks.
std::vector<uint64_t> key_masks(int64_t blocks, int64_t distance);

}  // namespace espalier::curate
