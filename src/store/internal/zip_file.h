// Zip files as torch.save writes them: stored entries, nothing compressed or encrypted; zip64 where sizes need it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "base/file.h"

namespace espalier::store {

struct ZipEntry {
  int64_t offset = 0, size = 0;  // of its content in the file
  uint32_t crc = 0;
};

// Whether the file begins as a zip file does.
bool is_zip_file(const InputFile& file);

// All entries by name. Throws Refusal on anything that torch.save does not write: other methods, names with "..",
// entries that overlap or leave the file, a local header that differs from the directory.
std::map<std::string, ZipEntry> read_zip_directory(const InputFile& file);

// CRC-32 as zip has it, of `data` after what gave `crc` (0 at the start).
uint32_t crc32(const void* data, size_t size, uint32_t crc);

}  // namespace espalier::store
