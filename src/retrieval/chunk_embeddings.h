// Chunks as vectors: those of the database, to be indexed, and those of samples, to be looked up in the index.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "retrieval/chunk_database.h"
#include "retrieval/embedding_source.h"
#include "retrieval/ngram_embedder.h"

namespace espalier::retrieval {

// Chunk n of the database has id n.
class ChunkEmbeddings : public EmbeddingSource {
 public:
  // Both outlive it.
  ChunkEmbeddings(const ChunkDatabase& chunks, const NgramEmbedder& embedder, int threads);

  int64_t dimension() const override { return embedder_.dimension(); }
  const std::vector<int64_t>& ids() const override { return ids_; }
  EmbeddingOrigin origin() const override;
  void read(int64_t first, int64_t count, float* rows) override;

 private:
  const ChunkDatabase& chunks_;
  const NgramEmbedder& embedder_;
  int threads_;
  std::vector<int64_t> ids_;
};

// Calls `work` with every number below `count`, from several threads.
void in_parallel(int64_t count, int threads, const std::function<void(int64_t number)>& work);

}  // namespace espalier::retrieval
