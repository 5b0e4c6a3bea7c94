// Vectors of texts without a model: counts of runs of tokens, hashed into a fixed number of places.
//
//   const NgramEmbedder embedder(1024);
//   embedder.embed(ids, vector);
//
// Each run of one, two or three tokens adds 1 or -1 to one number of the vector; XXH3 of the run's ids, as 32-bit
// numbers, decides: the place by its remainder, the sign by its highest bit (Weinberger et al. 2009). The square root
// of each number's magnitude replaces it, so that frequent tokens do not dominate, and the vector is divided by its
// length. Texts that have runs in common are near, whatever they mean: this finds quotations, versions and repetitions,
// which is what a small corpus has to offer, and what a check of the path from texts to neighbours needs.
//
// The same bits on every machine: sums are of whole numbers, and IEEE 754 decides the rest.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace espalier::retrieval {

class NgramEmbedder {
 public:
  explicit NgramEmbedder(int64_t dimension) : dimension_(dimension) {}

  int64_t dimension() const { return dimension_; }
  std::string name() const;  // "ngrams-1024": equal for two that give the same vectors
  // Any number of ids; of none the vector is 0. `vector`: dimension() numbers.
  void embed(std::span<const int64_t> ids, float* vector) const;

 private:
  int64_t dimension_;
};

}  // namespace espalier::retrieval
