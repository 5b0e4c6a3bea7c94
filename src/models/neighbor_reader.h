// A model that continues text and reads, besides it, neighbours of the chunks of the text (Retro).
//
//   ReadText text{.cache = new_cache(...)};
//   model.read_on(ids, neighbors, text);     // a prompt, with the neighbours of each chunk that it finishes
//   model.read_on(id, {}, text);             // and one token after another
//
// Token i attends to the neighbours of the last chunk that ends at i or before. So those of a chunk are needed when its
// last token is read, and what has been read never changes: a text read piece by piece gives what it gives as a whole.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "tensor/attention_context.h"

namespace espalier::models {

struct NeighborShape {
  int64_t chunk_length = 0;
  int64_t num_neighbors = 0;         // of a chunk
  int64_t num_retrieved_chunks = 0;  // of a neighbour: the one that was found and those after it
};

// Of one chunk.
struct ChunkNeighbors {
  std::vector<int64_t> tokens;  // num_neighbors * num_retrieved_chunks * chunk_length; those that there are come first
  int64_t count = 0;            // of those that there are
  std::vector<int64_t> ids;     // where they were found; the model does not look at it
};

// A text as far as it has been read.
struct ReadText {
  tensor::KeyValueCache cache;  // of one row, with room for the whole text
  at::Tensor open_chunk;        // [n, 1, h]: what the encoder reads of the tokens of the chunk that is not finished
  at::Tensor neighbors;         // encoded, of the last finished chunk; undefined where there is none
  at::Tensor last_key;          // [1, chunk_length]: what a token sees of them
};

class NeighborReader {
 public:
  virtual ~NeighborReader() = default;
  virtual NeighborShape neighbor_shape() const = 0;
  // [1, s] ids, which follow those that `text` has -> hidden states after the final norm, [s, 1, h]. `neighbors`: of
  // each chunk that these ids finish, in order.
  virtual at::Tensor read_on(const at::Tensor& ids, const std::vector<ChunkNeighbors>& neighbors,
                             ReadText& text) const = 0;
};

}  // namespace espalier::models
