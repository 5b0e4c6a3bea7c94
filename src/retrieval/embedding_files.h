// Embeddings that another program made: safetensors files with `embeddings` (F32 [n, d]) and `ids` (I64 [n]). Shards of
// an index are such files, and say which encoder made them.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "retrieval/embedding_source.h"
#include "store/safetensors.h"

namespace espalier::retrieval {

class EmbeddingFiles : public EmbeddingSource {
 public:
  // One after another, as if they were one file. `needs_ids`: a file without `ids` is refused; otherwise its rows are
  // numbered from 0 on, over all files. A UserError (kBadData) says what is missing or has another type or shape.
  explicit EmbeddingFiles(const std::vector<std::filesystem::path>& files, bool needs_ids = true);

  int64_t dimension() const override { return dimension_; }
  const std::vector<int64_t>& ids() const override { return ids_; }
  EmbeddingOrigin origin() const override;
  // Of sizes, times of change and ids: a file of many gigabytes is read once, not twice.
  std::string fingerprint() const;
  void read(int64_t first, int64_t count, float* rows) override;

 private:
  struct Part {
    std::filesystem::path path;
    std::unique_ptr<store::SafetensorsFile> file;
    const uint8_t* rows = nullptr;  // a file of another program need not align them
    int64_t first = 0, count = 0;
  };
  void add(const std::filesystem::path& path, bool needs_ids);

  std::vector<Part> parts_;
  std::vector<int64_t> ids_;
  int64_t dimension_ = 0;
};

}  // namespace espalier::retrieval
