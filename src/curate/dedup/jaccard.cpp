#include "curate/dedup/jaccard.h"

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "text/utf8.h"

namespace espalier::curate {

ShingleSet to_set(std::vector<uint64_t> hashes) {
  std::sort(hashes.begin(), hashes.end());
  hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());
  return hashes;
}

ShingleSet openwebtext_shingles(std::string_view text) {
  std::vector<size_t> starts;
  for (const char *at = text.data(), *end = at + text.size(); at < end; at += text::decode_utf8(at).num_bytes)
    starts.push_back(static_cast<size_t>(at - text.data()));
  std::vector<uint64_t> shingles;
  for (size_t first = 0; first + 5 < starts.size(); ++first) {
    const size_t begin = starts[first], size = starts[first + 5] - begin;
    uint64_t shingle = 0;
    if (size < 8)  // the bytes themselves and their number
      std::memcpy(&shingle, text.data() + begin, size), shingle |= static_cast<uint64_t>(size) << 56;
    else
      shingle = hash64(text.data() + begin, size) | uint64_t{1} << 63;
    shingles.push_back(shingle);
  }
  return to_set(std::move(shingles));
}

double jaccard(const ShingleSet& a, const ShingleSet& b, JaccardDivisor divisor) {
  if (a.empty() || b.empty()) return 0;
  size_t both = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    both += a[i] == b[j];
    const bool step_a = a[i] <= b[j], step_b = b[j] <= a[i];
    i += step_a;
    j += step_b;
  }
  const size_t divided = divisor == JaccardDivisor::kMin   ? std::min(a.size(), b.size())
                         : divisor == JaccardDivisor::kMax ? std::max(a.size(), b.size())
                                                           : a.size() + b.size() - both;
  return static_cast<double>(both) / static_cast<double>(divided);
}

}  // namespace espalier::curate
