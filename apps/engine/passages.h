// Passages of an evidence file as rows of an index, by an encoder; and whether an index is of both.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/options/index_options.h"
#include "infer/text_embedder.h"
#include "retrieval/embedding_source.h"
#include "retrieval/evidence.h"

namespace espalier {

infer::TextEmbedder embedder_of(const EncoderOptions& encoder);

// UserErrors where the index was made by another encoder, or of other passages. What an index does not say, as those of
// another program's vectors, is taken to be right, and a line of the log says so.
void check_encoder(const infer::TextEmbedder& embedder, const EncoderOptions& options,
                   const retrieval::IndexFacts& index, const std::string& folder);
// `fingerprint`: of PassageList
void check_evidence(const std::string& fingerprint, const std::string& evidence, const retrieval::IndexFacts& index,
                    const std::string& folder);

class PassageVectors : public retrieval::EmbeddingSource {
 public:
  // The embedder outlives it. Every `log_interval` reads a line says how far it is.
  PassageVectors(const infer::TextEmbedder& embedder, const std::string& evidence, int64_t log_interval);

  int64_t dimension() const override { return embedder_.dimension(); }
  const std::vector<int64_t>& ids() const override { return list_.ids; }
  retrieval::EmbeddingOrigin origin() const override;
  void read(int64_t first, int64_t count, float* rows) override;

 private:
  const infer::TextEmbedder& embedder_;
  std::string evidence_;
  int64_t log_interval_;
  retrieval::PassageList list_;
  std::unique_ptr<retrieval::EvidenceReader> reader_;
  int64_t next_ = 0, num_batches_ = 0, num_embedded_ = 0;
};

}  // namespace espalier
