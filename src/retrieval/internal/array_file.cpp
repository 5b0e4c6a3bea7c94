#include "retrieval/internal/array_file.h"

#include "base/error.h"
#include "base/format.h"
#include "base/pending_file.h"

namespace espalier::retrieval::internal {

void write_array(const std::filesystem::path& path, const std::string& name, const std::vector<int64_t>& shape,
                 std::span<const int64_t> values) {
  std::vector<store::TensorEntry> entries = {{.name = name, .dtype = store::DType::kInt64, .shape = shape}};
  PendingFile pending(path);
  const std::string header = store::safetensors_header(entries, {});
  OutputFile file(pending.temporary());
  file.write(header.data(), header.size());
  file.write(values.data(), values.size_bytes());
  file.sync();
  file.close();
  move_into_place({&pending});
}

std::span<const int64_t> read_array(const store::SafetensorsFile& file, const std::filesystem::path& path,
                                    const std::string& name, const std::vector<int64_t>& shape) {
  const store::TensorEntry* const entry = file.find(name);
  if (entry == nullptr || entry->dtype != store::DType::kInt64 || entry->shape != shape) {
    std::vector<std::string> extents;
    for (const int64_t extent : shape) extents.push_back(std::to_string(extent));
    throw UserError(concat("'", path.string(), "': expected '", name, "' as I64 [", join(extents, ", "),
                           "]; the file is damaged, or belongs to another folder"),
                    ExitCode::kBadData);
  }
  const uint8_t* const data = file.data(*entry);
  ESPALIER_CHECK(reinterpret_cast<uintptr_t>(data) % alignof(int64_t) == 0, path.string());
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return {reinterpret_cast<const int64_t*>(data), static_cast<size_t>(count)};
}

}  // namespace espalier::retrieval::internal
