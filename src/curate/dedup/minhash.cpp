#include "curate/dedup/minhash.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "base/hash.h"
#include "base/mix64.h"
#include "curate/dedup/internal/minhash_loops.h"
#include "data/numpy_random.h"
#include "text/unicode_table.h"
#include "text/utf8.h"

namespace espalier::curate {
namespace {

using internal::kMinHashPadding;
using internal::WindowHash;

size_t padded(size_t values) { return (values + kMinHashPadding - 1) / kMinHashPadding * kMinHashPadding; }

constexpr uint32_t kMurmurFirst = 0xCC9E2D51u, kMurmurSecond = 0x1B873593u;
constexpr size_t kWindowBytes = 5;

WindowHash window_hash(uint64_t window) {
  const auto mix = [](uint32_t k) { return std::rotl(k * kMurmurFirst, 15) * kMurmurSecond; };
  return {std::rotl(mix(static_cast<uint32_t>(window)), 13),
          mix(static_cast<uint32_t>(window >> 32)) ^ static_cast<uint32_t>(kWindowBytes)};
}

// Which windows of a text were seen already, as far as a small table remembers.
class SeenWindows {
 public:
  void start_text() {
    if (++text_ == uint64_t{1} << 24) {
      table_.fill(0);
      text_ = 1;
    }
  }
  bool insert(uint64_t window) {  // false: seen
    uint64_t& place = table_[(window * kMinHashFirstOdd) >> (64 - kBits)];
    const uint64_t entry = text_ << 40 | window;
    if (place == entry) return false;
    place = entry;
    return true;
  }

 private:
  static constexpr int kBits = 13;
  static constexpr uint64_t kMinHashFirstOdd = 0x9E3779B97F4A7C15ULL;
  std::array<uint64_t, size_t{1} << kBits> table_{};
  uint64_t text_ = 0;
};

void add_runs(const std::vector<uint64_t>& units, size_t size, std::vector<uint64_t>& hashes) {
  if (units.empty()) return;
  const size_t run = std::min(size, units.size());
  hashes.reserve(units.size() - run + 1);
  for (size_t at = 0; at + run <= units.size(); ++at) hashes.push_back(hash64(&units[at], run * sizeof(uint64_t)));
}

}  // namespace

MinHashIsa best_minhash_isa() {
  static const MinHashIsa best = [] {
#ifdef __aarch64__
    return MinHashIsa::kGeneric;
#else
    const char* wanted = std::getenv("ESPALIER_CPU_ISA");
    const std::string_view limit = wanted == nullptr ? "" : wanted;
    if (limit == "generic") return MinHashIsa::kGeneric;
    const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                            __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    if (has_avx512 && limit != "avx2") return MinHashIsa::kAvx512;
    return __builtin_cpu_supports("avx2") ? MinHashIsa::kAvx2 : MinHashIsa::kGeneric;
#endif
  }();
  return best;
}

std::vector<uint32_t> openwebtext_seeds() {
  data::NumpyRandom random(1234);
  std::vector<uint32_t> seeds(100);
  for (uint32_t& seed : seeds) seed = static_cast<uint32_t>(random.integer(0, 1000000));
  return seeds;
}

WindowMinHash::WindowMinHash(const std::vector<uint32_t>& seeds, MinHashIsa isa)
    : num_values_(seeds.size()), rotated_seeds_(padded(seeds.size())), isa_(isa) {
  for (size_t value = 0; value < seeds.size(); ++value) rotated_seeds_[value] = std::rotl(seeds[value], 13);
}

std::vector<uint32_t> WindowMinHash::operator()(std::string_view text) const {
  std::vector<uint32_t> least(rotated_seeds_.size(), 0xFFFFFFFFu);
  constexpr size_t kBlock = 1024;
  thread_local const auto seen = std::make_unique<SeenWindows>();
  std::array<WindowHash, kBlock> block;
  size_t in_block = 0;
  const auto loops = isa_ == MinHashIsa::kAvx512 ? internal::minhash_windows_avx512
                     : isa_ == MinHashIsa::kAvx2 ? internal::minhash_windows_avx2
                                                 : internal::MinHashLoops<16>::windows;
  const auto flush = [&] {
    loops(block.data(), in_block, rotated_seeds_.data(), least.data(), num_values_);
    in_block = 0;
  };
  seen->start_text();
  uint64_t window = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    window = window >> 8 | static_cast<uint64_t>(static_cast<uint8_t>(text[at])) << 32;
    if (at + 1 < kWindowBytes || !seen->insert(window)) continue;
    block[in_block++] = window_hash(window);
    if (in_block == kBlock) flush();
  }
  flush();
  least.resize(num_values_);
  return least;
}

std::vector<uint64_t> shingle_hashes(std::string_view text, ShingleUnit unit, int64_t size) {
  std::vector<uint64_t> units, hashes;
  std::string word;
  const auto finish_word = [&] {
    if (!word.empty()) units.push_back(hash64(word));
    word.clear();
  };
  const char *at = text.data(), *const end = at + text.size();
  while (at < end) {
    const text::CodePoint point = text::decode_utf8(at);
    at += point.num_bytes;
    if (unit == ShingleUnit::kCharacters) {
      units.push_back(point.code);
    } else if (text::is_word(point.code)) {
      if (point.code < 0x80)
        word += static_cast<char>(point.code >= 'A' && point.code <= 'Z' ? point.code + 32 : point.code);
      else
        text::append_utf8(text::lowercase_of(point.code), word);
    } else {
      finish_word();
    }
  }
  finish_word();
  add_runs(units, static_cast<size_t>(size), hashes);
  return hashes;
}

ShingleMinHash::ShingleMinHash(int64_t num_values, uint64_t seed, MinHashIsa isa)
    : num_values_(static_cast<size_t>(num_values)), masks_(padded(num_values_)), isa_(isa) {
  for (uint64_t& mask : masks_) mask = mix64(seed += kMix64Step);
}

std::vector<uint64_t> ShingleMinHash::operator()(std::span<const uint64_t> shingles) const {
  std::vector<uint64_t> least(masks_.size(), ~uint64_t{0});
  const auto loops = isa_ == MinHashIsa::kAvx512 ? internal::minhash_shingles_avx512
                     : isa_ == MinHashIsa::kAvx2 ? internal::minhash_shingles_avx2
                                                 : internal::MinHashLoops<16>::shingles;
  loops(shingles.data(), shingles.size(), masks_.data(), least.data(), num_values_);
  least.resize(num_values_);
  return least;
}

template <class Value>
std::vector<uint64_t> band_hashes(std::span<const Value> signature, int64_t bands, int64_t rows) {
  ESPALIER_CHECK(static_cast<int64_t>(signature.size()) == bands * rows, signature.size());
  std::vector<uint64_t> hashes(static_cast<size_t>(bands));
  for (size_t band = 0; band < hashes.size(); ++band)
    hashes[band] =
        hash64(&signature[band * static_cast<size_t>(rows)], static_cast<size_t>(rows) * sizeof(Value), band);
  return hashes;
}
template std::vector<uint64_t> band_hashes(std::span<const uint32_t>, int64_t, int64_t);
template std::vector<uint64_t> band_hashes(std::span<const uint64_t>, int64_t, int64_t);

double candidate_chance(double similarity, int64_t bands, int64_t rows) {
  return 1 - std::pow(1 - std::pow(similarity, static_cast<double>(rows)), static_cast<double>(bands));
}

}  // namespace espalier::curate
