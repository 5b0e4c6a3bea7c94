// MinHash: signatures of texts; two share as many values as their sets of shingles have elements in common.
//
// Two settings. OpenWebText's (tools/openwebtext of Megatron-LM with the package LSH): MurmurHash3_x86_32 of every
// window of 5 bytes under 100 seeds, the least as a signed number that is at most -1; equal to it bit for bit. The
// modern one: each shingle of words or characters has one 64-bit hash, of which each value of the signature takes
// another mixture.
//
// A signature costs O(shingles x values) and holds nothing but the values; in the first setting, windows that were seen
// a moment ago are left out, which changes no minimum. The inner loops are compiled for each instruction set
// (minhash_avx2.cpp, minhash_avx512.cpp) and chosen at run time, with the same bits.
// Broder, On the resemblance and containment of documents, 1997; Leskovec et al., Mining of Massive Datasets, 3.4.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace espalier::curate {

enum class MinHashIsa { kGeneric, kAvx2, kAvx512 };
MinHashIsa best_minhash_isa();  // what the machine has; ESPALIER_CPU_ISA lowers it, as for the kernels of training

// The 100 seeds of OpenWebText's pipeline.
std::vector<uint32_t> openwebtext_seeds();

class WindowMinHash {
 public:
  explicit WindowMinHash(const std::vector<uint32_t>& seeds, MinHashIsa isa = best_minhash_isa());
  std::vector<uint32_t> operator()(std::string_view text) const;

 private:
  size_t num_values_;
  std::vector<uint32_t> rotated_seeds_;  // filled up to whole vectors
  MinHashIsa isa_;
};

enum class ShingleUnit { kWords, kCharacters };

// A hash for each run of `size` words (runs of letters, digits, marks and connectors, lower-cased) or characters, as
// they come, with repeats; where there are fewer than `size`, one of all; none for a text without any. Valid UTF-8.
std::vector<uint64_t> shingle_hashes(std::string_view text, ShingleUnit unit, int64_t size);

class ShingleMinHash {
 public:
  ShingleMinHash(int64_t num_values, uint64_t seed, MinHashIsa isa = best_minhash_isa());
  std::vector<uint64_t> operator()(std::span<const uint64_t> shingles) const;  // all ones for no shingle

 private:
  size_t num_values_;
  std::vector<uint64_t> masks_;  // filled up to whole vectors
  MinHashIsa isa_;
};

// A hash of each band of `rows` values; two texts with an equal one are candidates.
template <class Value>
std::vector<uint64_t> band_hashes(std::span<const Value> signature, int64_t bands, int64_t rows);

// The chance that texts of that Jaccard similarity share a band: 1 - (1 - s^rows)^bands.
double candidate_chance(double similarity, int64_t bands, int64_t rows);

}  // namespace espalier::curate
