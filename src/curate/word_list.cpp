#include "curate/word_list.h"

#include "base/file.h"
#include "base/format.h"
#include "text/python_text.h"
#include "text/utf8.h"

namespace espalier::curate {

std::unordered_set<std::string> read_word_list(const std::string& file, const std::string& option, Problems& problems) {
  std::unordered_set<std::string> words;
  try {
    const std::string content = read_file(file);
    if (const size_t valid = text::valid_utf8_prefix(content); valid < content.size()) {
      problems.add(option, " ", file, ": byte ", format_count(static_cast<int64_t>(valid) + 1), " is not UTF-8");
      return words;
    }
    for (const std::string& line : split(content, '\n'))
      if (const std::string_view word = text::python::strip(line); !word.empty()) words.emplace(word);
    if (words.empty()) problems.add(option, " ", file, " holds no words; it should have one per line");
  } catch (const UserError& error) {
    problems.add(option, ": ", error.what());
  }
  return words;
}

}  // namespace espalier::curate
