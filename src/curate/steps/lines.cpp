#include "curate/steps/lines.h"

#include <algorithm>

namespace espalier::curate {

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  for (size_t at = 0;;) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    if (end == text.size()) return lines;
    at = end + 1;
  }
}

std::string join_lines(const std::vector<std::string_view>& lines) {
  std::string text;
  for (size_t index = 0; index < lines.size(); ++index) {
    if (index > 0) text += '\n';
    text += lines[index];
  }
  return text;
}

}  // namespace espalier::curate
