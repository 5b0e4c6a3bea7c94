#include "apps/engine/serve_passages.h"

#include "apps/engine/passages.h"
#include "base/format.h"
#include "base/log.h"

namespace espalier {
namespace {

class PassageFinder {
 public:
  explicit PassageFinder(const PassageOptions& options)
      : index_(retrieval::read_index(options.index)), embedder_(embedder_of(options.encoder)), plan_(options.search) {
    const retrieval::PassageList list = retrieval::list_passages(options.evidence);
    check_encoder(embedder_, options.encoder, index_, options.index);
    check_evidence(list.fingerprint, options.evidence, index_, options.index);
    plan_.trained = open_trained(index_, options.index, options.probes);
    passages_ = retrieval::read_passages(options.evidence, list.ids);
    log_info("retrieval: ", format_counted(index_.rows, "vector"), " of ",
             format_counted(static_cast<int64_t>(passages_.size()), "passage"));
  }

  std::vector<serve::FoundPassage> find(const std::string& question, int64_t count) const {
    std::vector<float> query(static_cast<size_t>(embedder_.dimension()));
    embedder_.embed_questions({question}, query.data());
    retrieval::SearchPlan plan = plan_;
    plan.count = count;
    const auto hits = search(index_, query.data(), 1, plan);
    std::vector<serve::FoundPassage> found;
    for (const retrieval::Hit& hit : hits.front()) {
      const auto passage = passages_.find(hit.id);
      if (passage == passages_.end())
        throw UserError(concat("the index has a passage ", hit.id, ", which --evidence-data-path has not"),
                        ExitCode::kBadData);
      found.push_back({hit.id, passage->second.title, passage->second.text, hit.score});
    }
    return found;
  }

 private:
  retrieval::IndexFacts index_;
  infer::TextEmbedder embedder_;
  retrieval::SearchPlan plan_;
  std::unordered_map<int64_t, retrieval::Passage> passages_;
};

}  // namespace

serve::FindPassages passage_finder(const ServeOptions& options) {
  if (options.passages.index.empty()) return nullptr;
  return [finder = std::make_shared<const PassageFinder>(options.passages)](
             const std::string& question, int64_t count) { return finder->find(question, count); };
}

}  // namespace espalier
