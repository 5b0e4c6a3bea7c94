#include "curate/dedup/simhash.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "base/hash.h"
#include "text/unicode_table.h"
#include "text/utf8.h"

namespace espalier::curate {

std::vector<uint64_t> simhash_words(std::string_view text) {
  std::vector<uint64_t> words;
  std::string word;
  const auto finish_word = [&] {
    if (!word.empty()) words.push_back(hash64(word));
    word.clear();
  };
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const text::CodePoint point = text::decode_utf8(at);
    at += point.num_bytes;
    if (text::is_white_space(point.code))
      finish_word();
    else if (!text::is_punctuation(point.code))
      text::append_utf8(text::lowercase_of(point.code), word);
  }
  finish_word();
  return words;
}

uint64_t simhash_of(std::span<const uint64_t> hashes) {
  std::array<int64_t, 64> ones{};
  for (const uint64_t hash : hashes)
    for (size_t bit = 0; bit < 64; ++bit) ones[bit] += static_cast<int64_t>(hash >> bit & 1);
  uint64_t result = 0;
  for (size_t bit = 0; bit < 64; ++bit)
    if (2 * ones[bit] > static_cast<int64_t>(hashes.size())) result |= uint64_t{1} << bit;
  return result;
}

std::optional<uint64_t> simhash(std::string_view text, int64_t window) {
  const std::vector<uint64_t> words = simhash_words(text);
  if (words.empty()) return {};
  const size_t run = std::min(static_cast<size_t>(window), words.size());
  std::vector<uint64_t> hashes;
  for (size_t at = 0; at + run <= words.size(); ++at) hashes.push_back(hash64(&words[at], run * sizeof(uint64_t)));
  return simhash_of(hashes);
}

std::vector<uint64_t> block_masks(int64_t blocks) {
  std::vector<uint64_t> masks;
  int64_t first = 0;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t size = 64 / blocks + (block < 64 % blocks);
    uint64_t mask = 0;
    for (int64_t bit = first; bit < first + size; ++bit) mask |= uint64_t{1} << bit;
    masks.push_back(mask);
    first += size;
  }
  return masks;
}

std::vector<uint64_t> key_masks(int64_t blocks, int64_t distance) {
  const std::vector<uint64_t> masks = block_masks(blocks);
  std::vector<uint64_t> keys;
  for (uint64_t choice = 0; choice < uint64_t{1} << blocks; ++choice) {
    if (std::popcount(choice) != blocks - distance) continue;
    uint64_t key = 0;
    for (size_t block = 0; block < masks.size(); ++block)
      if (choice >> block & 1) key |= masks[block];
    keys.push_back(key);
  }
  return keys;
}

}  // namespace espalier::curate
