#include "launch/nodelist.h"

#include "base/error.h"
#include "base/format.h"
#include "launch/internal/number.h"

namespace espalier::launch {
namespace {

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
  throw UserError(concat("'", text, "' is not a list of nodes as SLURM writes it (n[01-03,7],x2): ", why),
                  ExitCode::kUsage);
}

// At commas outside of brackets.
std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> names(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (depth < 0 || depth > 1) refuse(text, "its brackets do not match");
    if (c == ',' && depth == 0)
      names.emplace_back();
    else
      names.back() += c;
  }
  if (depth != 0) refuse(text, "its brackets do not match");
  return names;
}

// "01-03,7" -> 01 02 03 7: as many digits as the first number of a range has.
std::vector<std::string> expand_ranges(const std::string& ranges, const std::string& text) {
  constexpr int64_t kMaxNodes = 1'000'000;
  std::vector<std::string> numbers;
  for (const std::string& range : split(ranges, ',')) {
    const std::vector<std::string> ends = split(range, '-');
    const std::optional<int64_t> first = parse_whole(ends.front()), last = parse_whole(ends.back());
    if (ends.size() > 2 || !first || !last || *last < *first || *last - *first > kMaxNodes)
      refuse(text, concat("'", range, "' is not a range of numbers"));
    for (int64_t number = *first; number <= *last; ++number) {
      const std::string digits = std::to_string(number);
      const size_t width = ends.front().size();
      numbers.push_back(digits.size() < width ? std::string(width - digits.size(), '0') + digits : digits);
    }
  }
  return numbers;
}

}  // namespace

std::vector<std::string> expand_nodelist(const std::string& text) {
  std::vector<std::string> nodes;
  for (const std::string& name : split_names(text)) {
    if (name.empty()) refuse(text, "a name is empty");
    std::vector<std::string> expanded = {""};
    for (size_t at = 0; at < name.size();) {
      std::vector<std::string> endings = {std::string(1, name[at])};
      size_t length = 1;
      if (name[at] == '[') {
        length = name.find(']', at) - at + 1;
        endings = expand_ranges(name.substr(at + 1, length - 2), text);
      }
      std::vector<std::string> longer;
      for (const std::string& start : expanded)
        for (const std::string& ending : endings) longer.push_back(start + ending);
      expanded = std::move(longer);
      at += length;
    }
    nodes.insert(nodes.end(), expanded.begin(), expanded.end());
  }
  return nodes;
}

std::vector<int64_t> expand_tasks_per_node(const std::string& text) {
  std::vector<int64_t> counts;
  for (const std::string& entry : split(text, ',')) {
    const size_t bracket = entry.find("(x");
    const std::optional<int64_t> count = parse_whole(entry.substr(0, bracket));
    std::optional<int64_t> times = 1;
    if (bracket != std::string::npos)
      times = entry.ends_with(")") ? parse_whole(entry.substr(bracket + 2, entry.size() - bracket - 3)) : std::nullopt;
    if (!count || !times || *times < 1 || *times > 1'000'000)
      throw UserError(concat("'", text, "' is not a count of tasks per node as SLURM writes it (2(x3),1)"),
                      ExitCode::kUsage);
    counts.insert(counts.end(), static_cast<size_t>(*times), *count);
  }
  return counts;
}

}  // namespace espalier::launch
