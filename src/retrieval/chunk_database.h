// The chunks among which neighbours are sought: the documents of training, cut into pieces of a fixed number of tokens.
//
//   build_chunks({.folder = "work", .chunk_length = 64, .end_of_document = eod, .parts = ...});
//   const ChunkDatabase chunks("work");
//   chunks.read(chunks.place(17), 2, ids);     // chunk 17 and what follows it in its document
//
// A chunk never spans documents; the last chunk of a document may be shorter. The token that ends a document belongs to
// none. Chunks are numbered across all data sets, so that the place of each follows from how many each document has:
//
//   chunks.json                 {"format": 1, "chunk_length", "end_of_document", "chunks", "sets": [{"prefix",
//                                "documents": [begin, end], "chunks", "tokens", "file"}, ...]}
//   chunks-00000.safetensors    first_chunk I64 [documents + 1]: of each document, counted from the set's first chunk
//
// The tokens stay where they are; `tokens` is a checksum of sizes and of some places of the file, which reveals that it
// was made again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/splits.h"
#include "data/token_store.h"
#include "store/safetensors.h"

namespace espalier::retrieval {

struct ChunkPart {
  std::string prefix;  // of token files
  data::DocumentRange documents;
};

struct ChunkPlan {
  std::filesystem::path folder;
  int64_t chunk_length = 64;
  int64_t end_of_document = 0;
  std::vector<ChunkPart> parts;
  int threads = 1;
  bool overwrite = false;  // replace what exists
};

// What exists already and would be the same stays. Returns the number of chunks. UserErrors: chunks of other
// documents or of another length exist there; no chunk at all.
int64_t build_chunks(const ChunkPlan& plan);

// Immutable; any number of threads may read.
class ChunkDatabase {
 public:
  // UserErrors: no chunks in the folder, or token files that are gone or have changed.
  explicit ChunkDatabase(const std::filesystem::path& folder);

  int64_t size() const { return num_chunks_; }
  int64_t chunk_length() const { return chunk_length_; }
  int64_t end_of_document() const { return end_of_document_; }
  uint64_t checksum() const { return checksum_; }  // of all that decides what a chunk holds

  struct Place {
    int64_t set = 0, document = 0, begin = 0;  // token of the document
    int64_t length = 0;                        // 1 to chunk_length()
    int64_t file = 0;                          // file_of() its token files, which several sets may read
  };
  Place place(int64_t chunk) const;
  // The tokens of `count` chunks from that place on, as far as its document has them; the rest is filled with the token
  // that ends documents. `ids`: count * chunk_length().
  void read(const Place& place, int64_t count, int64_t* ids) const;
  // A number for those token files; -1 where no chunk is of them.
  int64_t file_of(const std::string& prefix) const;

 private:
  struct Set {
    std::string prefix;
    data::DocumentRange documents;
    int64_t first_chunk = 0, file = 0;
    std::unique_ptr<data::TokenStore> store;
    std::unique_ptr<store::SafetensorsFile> table;
    std::span<const int64_t> first_chunks;  // of each document, counted from first_chunk
  };
  int64_t length_of(const Set& set, int64_t document) const;

  std::filesystem::path folder_;
  int64_t chunk_length_ = 0, end_of_document_ = 0, num_chunks_ = 0;
  uint64_t checksum_ = 0;
  std::vector<Set> sets_;
};

}  // namespace espalier::retrieval
