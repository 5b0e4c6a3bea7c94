#include "apps/engine/passages.h"

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"

namespace espalier {

infer::TextEmbedder embedder_of(const EncoderOptions& encoder) {
  return infer::TextEmbedder({.load = encoder.folder(),
                              .step = encoder.ckpt_step,
                              .sequence_length = encoder.sequence_length,
                              .threads = static_cast<int>(encoder.workers)});
}

void check_encoder(const infer::TextEmbedder& embedder, const EncoderOptions& options,
                   const retrieval::IndexFacts& index, const std::string& folder) {
  if (embedder.dimension() != index.dimension)
    throw UserError(
        concat("the encoder makes vectors of ", format_counted(embedder.dimension(), "number"), ", the rows of '",
               folder, "' have ", index.dimension, "; give the run that the index was made with"),
        ExitCode::kBadData);
  const std::string& made_by = index.origin.encoder;
  if (made_by.empty())
    log_info("'", folder, "' does not say which encoder made it; the right one is assumed to be ", options.folder());
  else if (made_by != embedder.fingerprint())
    throw UserError(
        concat("'", folder, "' was made by another encoder: its fingerprint is ", made_by, ", and that of ",
               options.folder(), ", step ", embedder.loaded().step, ", is ", embedder.fingerprint(),
               ". Give the run, the --ckpt-step and the --retriever-seq-length that the index was made with, or make ",
               "it again with 'espalier index embed --overwrite'"),
        ExitCode::kBadData);
}

void check_evidence(const std::string& fingerprint, const std::string& evidence, const retrieval::IndexFacts& index,
                    const std::string& folder) {
  const std::string& made_of = index.origin.texts;
  if (!made_of.starts_with("passages ")) {
    log_info("'", folder, "' does not say which passages it is of; they are assumed to be those of ", evidence);
    return;
  }
  if (fingerprint != made_of)
    throw UserError(
        concat("'", folder, "' was made of other passages than those of ", evidence, ": ", made_of, ", not ",
               fingerprint, ". Give the file that it was made of, or make it again with --overwrite"),
        ExitCode::kBadData);
}

PassageVectors::PassageVectors(const infer::TextEmbedder& embedder, const std::string& evidence, int64_t log_interval)
    : embedder_(embedder),
      evidence_(evidence),
      log_interval_(log_interval),
      list_(retrieval::list_passages(evidence)),
      reader_(std::make_unique<retrieval::EvidenceReader>(evidence)) {}

retrieval::EmbeddingOrigin PassageVectors::origin() const {
  return {.encoder = embedder_.fingerprint(), .texts = list_.fingerprint};
}

void PassageVectors::read(int64_t first, int64_t count, float* rows) {
  ESPALIER_CHECK(first >= next_, "row ", first, " after row ", next_);
  std::vector<infer::TextEmbedder::Passage> passages;
  for (retrieval::Passage passage; next_ < first + count; ++next_) {
    if (!reader_->next(passage) || passage.id != list_.ids[static_cast<size_t>(next_)])
      throw UserError(concat("'", evidence_, "' has changed while it was read"), ExitCode::kBadData);
    if (next_ >= first) passages.push_back({std::move(passage.title), std::move(passage.text)});
  }
  embedder_.embed_passages(passages, rows);
  num_embedded_ += count;
  if (++num_batches_ % log_interval_ == 0)
    log_info(format_printf("Batch %10lld | Total %10lld", static_cast<long long>(num_batches_),
                           static_cast<long long>(num_embedded_)));
}

}  // namespace espalier
