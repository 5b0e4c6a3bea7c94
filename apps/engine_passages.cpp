#include "engine_passages.h"

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"

namespace espalier {

PassageVectors::PassageVectors(const infer::TextEmbedder& embedder, const std::string& evidence, int64_t log_interval)
    : embedder_(embedder),
      evidence_(evidence),
      log_interval_(log_interval),
      ids_(retrieval::read_passage_ids(evidence)),
      reader_(std::make_unique<retrieval::EvidenceReader>(evidence)) {}

// The size and the time of change of the file stand for its texts, which a build reads once.
std::string PassageVectors::fingerprint() const {
  Hasher hasher;
  const std::string model = embedder_.fingerprint();
  hasher.update(model.data(), model.size());
  hasher.update(ids_.data(), ids_.size() * sizeof(int64_t));
  const int64_t facts[] = {file_size_bytes(evidence_),
                           std::filesystem::last_write_time(evidence_).time_since_epoch().count()};
  hasher.update(facts, sizeof facts);
  return hex64(hasher.digest());
}

void PassageVectors::read(int64_t first, int64_t count, float* rows) {
  ESPALIER_CHECK(first >= next_, "row ", first, " after row ", next_);
  std::vector<infer::TextEmbedder::Passage> passages;
  for (retrieval::Passage passage; next_ < first + count; ++next_) {
    if (!reader_->next(passage) || passage.id != ids_[static_cast<size_t>(next_)])
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
