// The neighbours of chunks that are in no data set: what a Retro reads while it continues a text.
//
//   const ChunkSearch search("work", plan);
//   search.find(ids);      // of each chunk of them: numbers of chunks of the database, the nearest first
//
// They are found as those of training samples are (neighbors.h), but no document is left out: a text that is being
// written is of none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "retrieval/chunk_database.h"
#include "retrieval/ngram_embedder.h"
#include "retrieval/search.h"

namespace espalier::retrieval {

class ChunkSearch {
 public:
  // Of the folder of `espalier retro build`. UserErrors: no chunks or index there; an index of other chunks, or of
  // vectors that other programs made, which cannot be made of new texts.
  ChunkSearch(const std::filesystem::path& workdir, const SearchPlan& plan);

  const ChunkDatabase& chunks() const { return chunks_; }
  // What decides what is found: two that are equal find the same. By the trained index where there is one.
  std::string origin() const;
  const TrainedIndex* trained() const { return plan_.trained.get(); }  // null: the search is exact
  // `ids`: whole chunks, one after another. plan.count for each, or fewer where the database has fewer. One call reads
  // the whole index once.
  std::vector<std::vector<int64_t>> find(std::span<const int64_t> ids) const;

 private:
  ChunkDatabase chunks_;
  IndexFacts index_;
  NgramEmbedder embedder_;
  SearchPlan plan_;
};

}  // namespace espalier::retrieval
