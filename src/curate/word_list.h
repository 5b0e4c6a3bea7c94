// Word lists from files: a word per line, UTF-8; blank lines do not count.
#pragma once

#include <string>
#include <unordered_set>

#include "base/error.h"

namespace espalier::curate {

// Empty, with a problem that names `option`, where the file cannot be read, is not UTF-8, or holds no words.
std::unordered_set<std::string> read_word_list(const std::string& file, const std::string& option, Problems& problems);

}  // namespace espalier::curate
