// Vectors to be indexed, wherever they come from: files, or an encoder of texts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::retrieval {

// What decides the rows of an index, as fingerprints.
struct EmbeddingOrigin {
  std::string encoder;  // of texts; empty: another program made the vectors, and did not say with what
  std::string texts;    // "passages 0123456789abcdef": what the vectors are of

  bool operator==(const EmbeddingOrigin&) const = default;
};

class EmbeddingSource {
 public:
  virtual ~EmbeddingSource() = default;

  virtual int64_t dimension() const = 0;
  virtual const std::vector<int64_t>& ids() const = 0;  // one for each row, each once, none negative
  // Equal for two sources that give the same rows: what was built from one may be continued with the other.
  virtual EmbeddingOrigin origin() const = 0;
  // Rows [first, first + count) in fp32, [count, dimension], into `rows`. Called in ascending order, every row at most
  // once; rows that are in the index already are left out.
  virtual void read(int64_t first, int64_t count, float* rows) = 0;
};

}  // namespace espalier::retrieval
