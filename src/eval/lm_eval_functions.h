// What the Python functions of stock task files do. A task file is data: no Python is run, and a function that is not
// in this list is refused by name.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "eval/fields.h"

namespace espalier::eval {

using DocumentFunction = std::function<Json(const Fields&)>;

// `reference`: what is after !function ("utils.doc_to_text") in a file of `folder`; the folder's name and the
// reference together name the function. None: an empty function.
DocumentFunction find_function(const std::filesystem::path& folder, const std::string& reference);

}  // namespace espalier::eval
