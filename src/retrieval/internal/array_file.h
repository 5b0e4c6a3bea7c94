// One array of whole numbers in a safetensors file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "store/safetensors.h"

namespace espalier::retrieval::internal {

// The file appears when it is whole. `shape`: row-major.
void write_array(const std::filesystem::path& path, const std::string& name, const std::vector<int64_t>& shape,
                 std::span<const int64_t> values);

// The array where it is mapped; `file` outlives it. A UserError (kBadData) where it is missing or has another type or
// shape. `path`: of the file, for messages.
std::span<const int64_t> read_array(const store::SafetensorsFile& file, const std::filesystem::path& path,
                                    const std::string& name, const std::vector<int64_t>& shape);

}  // namespace espalier::retrieval::internal
