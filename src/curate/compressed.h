// Whole texts compressed with zstd, for files of this library's own.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace espalier::curate {

std::string compress(std::string_view text);
std::string read_compressed(const std::filesystem::path& path);

}  // namespace espalier::curate
