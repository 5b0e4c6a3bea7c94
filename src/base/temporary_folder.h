// Where files go that no option has named.
#pragma once

#include <filesystem>

namespace espalier {

// What TMPDIR names, else /tmp. A UserError where that is no folder.
std::filesystem::path temporary_folder();

}  // namespace espalier
