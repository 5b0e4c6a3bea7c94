// A file of a tokenizer as bytes; what is no such file is refused with what works instead.
#pragma once

#include <filesystem>
#include <string>

namespace espalier::text::internal {

// UserError for a path that does not exist (with what to download, if it looks like a name on the Hugging Face Hub), a
// pipe, a pointer of Git LFS, and a web page.
std::string read_tokenizer_file(const std::filesystem::path& path);

// The tokenizer.json of a folder, or `path` itself. UserError for a folder without one, with what that folder can be
// used for.
std::filesystem::path tokenizer_json_of(const std::filesystem::path& path);

}  // namespace espalier::text::internal
