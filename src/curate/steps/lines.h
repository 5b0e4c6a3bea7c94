// Texts as lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace espalier::curate {

// split("\n"): an empty text is one empty line.
std::vector<std::string_view> split_lines(std::string_view text);
std::string join_lines(const std::vector<std::string_view>& lines);

}  // namespace espalier::curate
