#include "retrieval/chunk_search.h"

#include "base/error.h"
#include "base/format.h"
#include "retrieval/chunk_embeddings.h"
#include "retrieval/trained_index.h"

namespace espalier::retrieval {

ChunkSearch::ChunkSearch(const std::filesystem::path& workdir, const SearchPlan& plan)
    : chunks_(workdir), index_(read_index(workdir / "index")), embedder_(index_.dimension), plan_(plan) {
  const EmbeddingOrigin wanted = ChunkEmbeddings(chunks_, embedder_, 1).origin();
  if (index_.origin == wanted) {
    plan_.trained = open_trained_index(index_);
    return;
  }
  const std::string folder = (workdir / "index").string();
  if (index_.origin.encoder != wanted.encoder)
    throw UserError(
        concat("'", folder, "' is an index of vectors that ",
               index_.origin.encoder.empty() ? "another program made" : concat("'", index_.origin.encoder, "' made"),
               "; a new text can only be looked up by its n-grams: build another folder with 'espalier "
               "retro build' without --embeddings-of-chunks"),
        ExitCode::kBadData);
  throw UserError(concat("'", folder, "' is an index of other chunks than those of '", workdir.string(),
                         "'; 'espalier retro build --overwrite' builds it again"),
                  ExitCode::kBadData);
}

std::string ChunkSearch::origin() const {
  return concat(index_.origin.encoder, " of ", index_.origin.texts,
                trained() != nullptr ? concat(" by ", trained()->name()) : "");
}

std::vector<std::vector<int64_t>> ChunkSearch::find(std::span<const int64_t> ids) const {
  const auto length = static_cast<size_t>(chunks_.chunk_length()), dimension = static_cast<size_t>(index_.dimension);
  ESPALIER_CHECK(ids.size() % length == 0, ids.size(), " tokens in chunks of ", length);
  const size_t count = ids.size() / length;
  std::vector<float> queries(count * dimension);
  for (size_t chunk = 0; chunk < count; ++chunk)
    embedder_.embed(ids.subspan(chunk * length, length), queries.data() + chunk * dimension);
  std::vector<std::vector<int64_t>> found;
  for (const std::vector<Hit>& hits : search(index_, queries.data(), static_cast<int64_t>(count), plan_)) {
    found.emplace_back();
    for (const Hit& hit : hits) found.back().push_back(hit.id);
  }
  return found;
}

}  // namespace espalier::retrieval
