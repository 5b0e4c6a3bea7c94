// Loads libespalier_search.so, from the program's folder, when it is first needed.
#pragma once

#include <filesystem>

#include "retrieval/search_table.h"

namespace espalier::retrieval {

std::filesystem::path search_plugin_path();

// A UserError names the file that is missing, cannot be loaded, or belongs to another build. It stays loaded.
const SearchTable& load_search_plugin(const std::filesystem::path& path = search_plugin_path());

}  // namespace espalier::retrieval
