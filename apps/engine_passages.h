// Passages of an evidence file as rows of an index, by an encoder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "infer/text_embedder.h"
#include "retrieval/embedding_source.h"
#include "retrieval/evidence.h"

namespace espalier {

class PassageVectors : public retrieval::EmbeddingSource {
 public:
  // The embedder outlives it. Every `log_interval` reads a line says how far it is.
  PassageVectors(const infer::TextEmbedder& embedder, const std::string& evidence, int64_t log_interval);

  int64_t dimension() const override { return embedder_.dimension(); }
  const std::vector<int64_t>& ids() const override { return ids_; }
  std::string fingerprint() const override;
  void read(int64_t first, int64_t count, float* rows) override;

 private:
  const infer::TextEmbedder& embedder_;
  std::string evidence_;
  int64_t log_interval_;
  std::vector<int64_t> ids_;
  std::unique_ptr<retrieval::EvidenceReader> reader_;
  int64_t next_ = 0, num_batches_ = 0, num_embedded_ = 0;
};

}  // namespace espalier
