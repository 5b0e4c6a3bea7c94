#include "retrieval/chunk_embeddings.h"

#include <algorithm>
#include <future>
#include <numeric>

#include "base/format.h"
#include "base/hash.h"
#include "base/thread_pool.h"

namespace espalier::retrieval {

void in_parallel(int64_t count, int threads, const std::function<void(int64_t number)>& work) {
  if (threads == 1 || count <= 1) {
    for (int64_t number = 0; number < count; ++number) work(number);
    return;
  }
  ThreadPool pool(threads);
  const int64_t at_once = std::max<int64_t>(1, count / (8 * threads));
  std::vector<std::future<void>> parts;
  for (int64_t first = 0; first < count; first += at_once)
    parts.push_back(pool.submit([&, first] {
      for (int64_t number = first; number < std::min(count, first + at_once); ++number) work(number);
    }));
  for (std::future<void>& part : parts) part.get();
}

ChunkEmbeddings::ChunkEmbeddings(const ChunkDatabase& chunks, const NgramEmbedder& embedder, int threads)
    : chunks_(chunks), embedder_(embedder), threads_(threads), ids_(static_cast<size_t>(chunks.size())) {
  std::iota(ids_.begin(), ids_.end(), 0);
}

EmbeddingOrigin ChunkEmbeddings::origin() const {
  return {.encoder = embedder_.name(), .texts = "chunks " + hex64(chunks_.checksum())};
}

// The padding of a short chunk is not part of its text.
void ChunkEmbeddings::read(int64_t first, int64_t count, float* rows) {
  in_parallel(count, threads_, [&](int64_t number) {
    std::vector<int64_t> ids(static_cast<size_t>(chunks_.chunk_length()));
    const ChunkDatabase::Place place = chunks_.place(first + number);
    chunks_.read(place, 1, ids.data());
    embedder_.embed({ids.data(), static_cast<size_t>(place.length)}, rows + number * dimension());
  });
}

}  // namespace espalier::retrieval
