// Whole texts compressed with zstd, for files of this library's own.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/error.h"

namespace espalier::curate {

std::string compress(std::string_view text);
// `path`: where the bytes are from, for the error where they are damaged.
std::string decompress(std::string_view bytes, const std::filesystem::path& path);
std::string read_compressed(const std::filesystem::path& path);
UserError damaged(const std::filesystem::path& path);

}  // namespace espalier::curate
