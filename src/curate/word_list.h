// Word lists from files: a word a line, UTF-8; lines without one do not count.
#pragma once

#include <string>
#include <unordered_set>

#include "base/error.h"

namespace espalier::curate {

// Empty, with a problem that names `option`, where the file cannot be read, is no UTF-8, or holds no word.
std::unordered_set<std::string> read_word_list(const std::string& file, const std::string& option, Problems& problems);

}  // namespace espalier::curate
