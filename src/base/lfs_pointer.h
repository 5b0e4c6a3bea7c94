// What `git clone` leaves in place of a large file where Git LFS is not installed: a small text that names the file.
//
//   version https://git-lfs.github.com/spec/v1
//   oid sha256:...
//   size 14500438
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace espalier {

// Of a file's first bytes (200 suffice) that are such a text: what it is and how to get the file itself, for a message.
std::optional<std::string> describe_lfs_pointer(const std::filesystem::path& path, std::string_view first_bytes);

}  // namespace espalier
