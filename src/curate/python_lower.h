// Python's str.lower() of valid UTF-8, the two cases where one letter depends on its neighbours or becomes two
// included: a sigma that ends a word, and a capital I with a dot.
#pragma once

#include <string>
#include <string_view>

namespace espalier::curate {

std::string python_lower(std::string_view text);

}  // namespace espalier::curate
