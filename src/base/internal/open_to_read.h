// What the ways of reading a file (file.h) have in common.
#pragma once

#include <filesystem>

namespace espalier::internal {

// UserError: "cannot OPERATION 'PATH': " and what errno says.
[[noreturn]] void fail_on_file(const char* operation, const std::filesystem::path& path);

// A descriptor, or -1 with errno. What is neither a file nor a folder is refused before it is opened (UserError).
int open_to_read(const std::filesystem::path& path);

}  // namespace espalier::internal
