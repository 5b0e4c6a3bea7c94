// Which files of a Hugging Face folder may be read.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace espalier::convert {

// The regular file `name` of `folder`, or where it is a link the file that it leads to: inside the folder, or among the
// blobs of the same model in a Hugging Face cache (models--X/snapshots/REVISION, models--X/blobs). Nothing where there
// is none of this name. UserError (kBadData) that names what it is instead: a link that leads elsewhere or nowhere, a
// pipe, a device, a folder.
std::optional<std::filesystem::path> file_of_folder(const std::filesystem::path& folder, const std::string& name);

// The same for every file of configuration, tokenizer and weights in the folder.
void check_files_of_folder(const std::filesystem::path& folder);

}  // namespace espalier::convert
