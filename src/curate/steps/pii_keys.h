// Keys in a text, as BigScience's expression for them finds them: card numbers, licence keys, tokens of letters and
// digits.
//
// The expression repeats what can match in many ways, so that a backtracking matcher may take for ever
// on a long token. This one remembers dead ends, and so finds the same match quickly.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace espalier::curate {

// In the order of the text. False where the text made the search take so long that it was given up.
bool find_keys(std::string_view text, std::vector<std::string>& keys);

}  // namespace espalier::curate
