// The safetensors format: u64 length of a JSON header, the header, the data. Read by mapping, written in order.
//
// A file that is cut off, too long, overlapping or of unknown type is refused with the field, the expected and the
// found value.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace espalier::store {

enum class DType { kFloat32, kFloat16, kBFloat16, kFloat64, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool };
int64_t size_bytes(DType dtype);
std::string to_string(DType dtype);  // "F32", "BF16", ...
std::optional<DType> dtype_from_string(const std::string& name);

struct TensorEntry {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes, from the start of the data
};

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::vector<TensorEntry>& entries() const { return entries_; }  // in the order of their data
  const TensorEntry* find(const std::string& name) const;
  const uint8_t* data(const TensorEntry& entry) const { return file_.data() + data_offset_ + entry.begin; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  int64_t data_offset() const { return data_offset_; }

 private:
  MappedFile file_;
  int64_t data_offset_ = 0;
  std::vector<TensorEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

// The header (length word included, padded with blanks so that data starts at a multiple of 64) for tensors laid out
// one after another in the given order; fills in begin and end.
std::string safetensors_header(std::vector<TensorEntry>& entries, const std::map<std::string, std::string>& metadata);

}  // namespace espalier::store
