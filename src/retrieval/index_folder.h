// An index of embeddings: a folder of shards that any reader of safetensors opens, and index.json.
//
//   index.json                  {"format": 1, "rows": N, "dimension": d, "encoder": ..., "texts": ...,
//                                "shards": [{"file", "rows", "xxh3"}, ...]}
//   shard-00000.safetensors     ids I64 [n], embeddings F32 [n, d]; its metadata holds its checksum and the encoder too
//   building.json               while it is not complete: what it is built from
//
// `xxh3` is XXH3 (64 bits) of the bytes of the ids followed by those of the embeddings. A shard appears under its name
// when it is whole, so a build that was killed resumes at the first missing shard, and ends with the same
// bytes. `encoder` and `texts` are the fingerprints of what the rows were made from (EmbeddingOrigin).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "retrieval/embedding_source.h"
#include "store/safetensors.h"

namespace espalier::retrieval {

struct BuildPlan {
  std::filesystem::path folder;
  int64_t shard_rows = 1 << 18;
  int64_t batch_rows = 4096;  // asked of the source at once
  bool overwrite = false;     // remove an existing index, or an unfinished one of something else
};

struct BuildSummary {
  int64_t rows = 0, dimension = 0, shards = 0;
  int64_t shards_kept = 0;  // of a build that was interrupted
  double seconds = 0;
};

// UserErrors: an index exists; an unfinished one of another source or shard size; an id that is negative or
// occurs twice; a number that is not finite, with its row and id.
BuildSummary build_index(EmbeddingSource& source, const BuildPlan& plan);

struct Shard {
  std::filesystem::path path;
  int64_t rows = 0;
  uint64_t checksum = 0;
};

struct IndexFacts {
  int64_t rows = 0, dimension = 0;
  EmbeddingOrigin origin;
  std::vector<Shard> shards;
};

// Where the metadata of a shard name the encoder.
inline constexpr const char* kEncoderOfShard = "encoder";

bool has_index(const std::filesystem::path& folder);  // a complete one
// Removes what a build that was killed at its very end has left beside a complete index.
void tidy_index(const std::filesystem::path& folder);

// UserErrors: no index, one that is not complete, one of a later format, or fields that contradict each other.
IndexFacts read_index(const std::filesystem::path& folder);

// A shard, mapped. A UserError if the file does not hold what index.json says.
class ShardFile {
 public:
  ShardFile(const Shard& shard, int64_t dimension);
  const float* rows() const { return reinterpret_cast<const float*>(file_.data(*embeddings_)); }
  const int64_t* ids() const { return reinterpret_cast<const int64_t*>(file_.data(*ids_)); }
  // What its metadata call its checksum; empty where they name none. Reads no row.
  std::string stored_checksum() const;

 private:
  store::SafetensorsFile file_;
  const store::TensorEntry* embeddings_ = nullptr;
  const store::TensorEntry* ids_ = nullptr;
};

// A UserError (kBadData) if the XXH3 of the shard's ids and rows is not what index.json says.
void check_checksum(const Shard& shard, uint64_t found);

}  // namespace espalier::retrieval
