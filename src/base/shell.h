// Text for shells.
#pragma once

#include <string>

namespace espalier {

// A word as a shell takes it: quoted where it must be.
std::string shell_word(const std::string& word);

}  // namespace espalier
