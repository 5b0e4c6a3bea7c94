// Reads what was written before it counts as saved: from the disk or the file server, not from this machine's memory.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "store/manifest.h"

namespace espalier::store {

// A range of a file that this process has written and the checksum of what it should hold.
struct WrittenRange {
  int64_t begin = 0;  // in the file
  int64_t bytes = 0;
  uint64_t checksum = 0;
  std::string what;  // "tensor 'w'", "header"
};

// `ranges` by position, without overlap. Throws UserError (kInputOutput) with file, range and both checksums at the
// first that differs.
void read_back(const std::filesystem::path& path, const std::vector<WrittenRange>& ranges);

}  // namespace espalier::store
