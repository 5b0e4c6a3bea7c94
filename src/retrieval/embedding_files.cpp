#include "retrieval/embedding_files.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/hash.h"
#include "retrieval/index_folder.h"

namespace espalier::retrieval {
namespace {

std::string shape_text(const store::TensorEntry& entry) {
  std::string text = to_string(entry.dtype) + " [";
  for (size_t dim = 0; dim < entry.shape.size(); ++dim) text += concat(dim == 0 ? "" : ", ", entry.shape[dim]);
  return text + "]";
}

std::string encoder_of_file(const store::SafetensorsFile& file) {
  const auto entry = file.metadata().find(kEncoderOfShard);
  return entry == file.metadata().end() ? "" : entry->second;
}

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& wanted, const std::string& found) {
  throw UserError(concat("'", path.string(), "': expected ", wanted, ", found ", found), ExitCode::kBadData);
}

}  // namespace

EmbeddingFiles::EmbeddingFiles(const std::vector<std::filesystem::path>& files, bool needs_ids) {
  for (const std::filesystem::path& path : files) add(path, needs_ids);
}

void EmbeddingFiles::add(const std::filesystem::path& path, bool needs_ids) {
  Part part{.path = path, .file = std::make_unique<store::SafetensorsFile>(path)};
  const store::TensorEntry* const rows = part.file->find("embeddings");
  if (rows == nullptr) refuse(path, "a tensor 'embeddings' (F32 [rows, dimension])", "none of that name");
  if (rows->dtype != store::DType::kFloat32 || rows->shape.size() != 2 || rows->shape[1] < 1)
    refuse(path, "'embeddings' as F32 [rows, dimension]", shape_text(*rows));
  if (!parts_.empty() && rows->shape[1] != dimension_)
    refuse(path, concat("rows of ", dimension_, " numbers as in '", parts_.front().path.string(), "'"),
           concat("rows of ", rows->shape[1]));
  dimension_ = rows->shape[1];
  part.first = static_cast<int64_t>(ids_.size());
  part.count = rows->shape[0];
  part.rows = part.file->data(*rows);
  ids_.resize(ids_.size() + static_cast<size_t>(part.count));
  const auto begin = ids_.begin() + part.first;
  const store::TensorEntry* const ids = part.file->find("ids");
  if (ids == nullptr) {
    if (needs_ids) refuse(path, concat("a tensor 'ids' (I64 [", part.count, "])"), "none of that name");
    std::iota(begin, ids_.end(), part.first);
  } else {
    if (ids->dtype != store::DType::kInt64 || ids->shape != std::vector<int64_t>{part.count})
      refuse(path, concat("'ids' as I64 [", part.count, "], one for each row"), shape_text(*ids));
    std::memcpy(ids_.data() + part.first, part.file->data(*ids), static_cast<size_t>(part.count) * sizeof(int64_t));
  }
  parts_.push_back(std::move(part));
}

// The encoder is known where all files name the same one.
EmbeddingOrigin EmbeddingFiles::origin() const {
  EmbeddingOrigin origin{.encoder = encoder_of_file(*parts_.front().file), .texts = "files " + fingerprint()};
  for (const Part& part : parts_)
    if (encoder_of_file(*part.file) != origin.encoder) origin.encoder.clear();
  return origin;
}

std::string EmbeddingFiles::fingerprint() const {
  Hasher hasher;
  hasher.update(ids_.data(), ids_.size() * sizeof(int64_t));
  for (const Part& part : parts_) {
    const int64_t facts[] = {part.count, dimension_, file_size_bytes(part.path),
                             std::filesystem::last_write_time(part.path).time_since_epoch().count()};
    hasher.update(facts, sizeof facts);
  }
  return hex64(hasher.digest());
}

void EmbeddingFiles::read(int64_t first, int64_t count, float* rows) {
  for (const Part& part : parts_) {
    const int64_t begin = std::max(first, part.first), end = std::min(first + count, part.first + part.count);
    if (begin >= end) continue;
    const int64_t row_bytes = dimension_ * static_cast<int64_t>(sizeof(float));
    std::memcpy(rows + (begin - first) * dimension_, part.rows + (begin - part.first) * row_bytes,
                static_cast<size_t>((end - begin) * row_bytes));
  }
}

}  // namespace espalier::retrieval
