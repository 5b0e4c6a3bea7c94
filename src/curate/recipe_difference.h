// In what a recipe differs from the one whose work or results lie in its folder.
#pragma once

#include <filesystem>
#include <string>

#include "curate/recipe.h"

namespace espalier::curate {

// "[output] by = \"language\", there it is \"source\"; and 3 more"; where the texts say the same, which input, list or
// model has changed since. `other`: the file with the text of that recipe; empty where it is not there.
std::string describe_difference(const Recipe& recipe, const std::filesystem::path& other);

}  // namespace espalier::curate
