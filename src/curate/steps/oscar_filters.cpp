#include "curate/steps/oscar_filters.h"

#include <algorithm>
#include <bitset>
#include <cmath>

#include "base/hash.h"
#include "curate/python_lower.h"
#include "text/python_text.h"
#include "text/utf8.h"

namespace espalier::curate {
namespace {

constexpr size_t kSpecialBound = 0x20000;  // no special character is greater

const std::bitset<kSpecialBound>& special_characters() {
  static const std::bitset<kSpecialBound> set = [] {
    std::bitset<kSpecialBound> made;
    for (const auto& [first, last] : special_character_ranges())
      for (char32_t code = first; code <= last; ++code) made.set(code);
    return made;
  }();
  return set;
}

// The blanks of other scripts, the object replacement character and a control character.
bool is_odd_blank(char32_t code) {
  switch (code) {
    case 0x84:
    case 0xA0:
    case 0x2002:
    case 0x2003:
    case 0x2005:
    case 0x2008:
    case 0x2009:
    case 0x200A:
    case 0x202F:
    case 0x3000:
    case 0xFFFC: return true;
    default: return false;
  }
}

std::string_view without_special_ends(std::string_view word) {
  const char *begin = word.data(), *end = begin + word.size();
  while (begin < end) {
    const text::CodePoint point = text::decode_utf8(begin);
    if (!is_special_character(point.code)) break;
    begin += point.num_bytes;
  }
  while (end > begin) {
    const char* const before = text::previous_utf8(end);
    if (!is_special_character(text::decode_utf8(before).code)) break;
    end = before;
  }
  return {begin, static_cast<size_t>(end - begin)};
}

bool has_part_of_link(std::string_view word) {
  for (const std::string_view part : {"http", "www", ".com", "href", "//"})
    if (word.find(part) != std::string_view::npos) return true;
  return false;
}

bool is_too_long(std::string_view word, int64_t longest) {
  if (text::python::num_characters(word) <= longest) return false;
  const std::string_view stripped = without_special_ends(word);
  return stripped.empty() || text::python::num_characters(stripped) > longest;
}

// Lines, their fields between tabs, and the words of these, without those that `goes` names. What is empty vanishes,
// and one separator stays between what is left.
template <class Goes>
std::string without_words(std::string_view text, Goes goes) {
  std::string result;
  char pending = '\0';  // the strongest separator since the last word
  const auto strengthen = [&pending](char separator) {
    if (pending == '\n' || (pending == '\t' && separator == ' ')) return;
    pending = separator;
  };
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find_first_of(" \t\n", at), text.size());
    const std::string_view word = text.substr(at, end - at);
    if (!word.empty() && !goes(word)) {
      if (!result.empty()) result += pending;
      result += word;
      pending = '\0';
    }
    if (end == text.size()) break;
    strengthen(text[end]);
    at = end + 1;
  }
  return result;
}

// How often each value occurs, given sorted ones.
std::vector<int64_t> frequencies(std::vector<uint64_t>& values) {
  std::sort(values.begin(), values.end());
  std::vector<int64_t> counts;
  for (size_t at = 0; at < values.size(); ++at) {
    if (at > 0 && values[at] == values[at - 1])
      ++counts.back();
    else
      counts.push_back(1);
  }
  return counts;
}

}  // namespace

bool is_special_character(char32_t code) { return code < kSpecialBound && special_characters()[code]; }

std::string oscar_plain_blanks(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const text::CodePoint point = text::decode_utf8(text.data() + at);
    const auto size = static_cast<size_t>(point.num_bytes);
    if (size > 1 && is_odd_blank(point.code))
      result += ' ';
    else
      result.append(text, at, size);
    at += size;
  }
  return result;
}

std::string oscar_modified(std::string_view text, const OscarParameters& parameters) {
  std::string result = oscar_plain_blanks(text::python::strip(text));
  if (parameters.removes_links)
    result = without_words(result, [](std::string_view word) { return has_part_of_link(without_special_ends(word)); });
  if (parameters.removes_long_words)
    result = without_words(result, [&](std::string_view word) { return is_too_long(word, parameters.longest_word); });
  return result;
}

std::vector<std::string> oscar_words_of(const std::vector<std::string>& pieces, bool lower_case) {
  std::vector<std::string> words;
  for (const std::string& piece : pieces) {
    const std::string word = lower_case ? python_lower(piece) : piece;
    const std::string_view stripped = without_special_ends(word);
    if (!stripped.empty()) words.emplace_back(stripped);
  }
  return words;
}

std::vector<std::string> oscar_words(std::string_view text, bool lower_case) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(" \t\n", at), text.size());
    if (end > at) {
      const std::string word =
          lower_case ? python_lower(text.substr(at, end - at)) : std::string(text.substr(at, end - at));
      const std::string_view stripped = without_special_ends(word);
      if (!stripped.empty()) words.emplace_back(stripped);
    }
    at = end + 1;
  }
  return words;
}

double character_repetition(std::string_view text, int64_t window) {
  // Where each character begins, and the end.
  std::vector<size_t> starts;
  starts.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size(); ++at)
    if ((static_cast<uint8_t>(text[at]) & 0xc0) != 0x80) starts.push_back(at);
  starts.push_back(text.size());
  const auto num_characters = static_cast<int64_t>(starts.size()) - 1;
  if (num_characters < window) return 0;
  std::vector<uint64_t> windows;
  windows.reserve(starts.size());
  for (int64_t first = 0; first + window <= num_characters; ++first) {
    const size_t begin = starts[static_cast<size_t>(first)];
    windows.push_back(hash64(text.data() + begin, starts[static_cast<size_t>(first + window)] - begin));
  }
  std::vector<int64_t> counts = frequencies(windows);
  const auto distinct = static_cast<int64_t>(counts.size());
  const int64_t singles = std::count(counts.begin(), counts.end(), 1);
  const int64_t top = std::min(static_cast<int64_t>(std::sqrt(static_cast<double>(distinct))), distinct - singles);
  std::partial_sort(counts.begin(), counts.begin() + top, counts.end(), std::greater<>());
  int64_t repeated = 0;
  for (int64_t at = 0; at < top; ++at) repeated += counts[static_cast<size_t>(at)];
  return static_cast<double>(repeated) / static_cast<double>(windows.size());
}

double word_repetition(const std::vector<std::string>& lower_words, int64_t window) {
  const auto num_words = static_cast<int64_t>(lower_words.size());
  if (num_words < window) return 0;
  std::vector<uint64_t> windows;
  std::string joined;
  for (int64_t first = 0; first + window <= num_words; ++first) {
    joined.clear();
    for (int64_t at = first; at < first + window; ++at) joined += lower_words[static_cast<size_t>(at)] + ' ';
    windows.push_back(hash64(joined));
  }
  int64_t repeated = 0;
  for (const int64_t count : frequencies(windows))
    if (count > 1) repeated += count;
  return static_cast<double>(repeated) / static_cast<double>(windows.size());
}

double special_character_share(std::string_view text) {
  if (text.empty()) return 0;
  int64_t characters = 0, special = 0;
  for (size_t at = 0; at < text.size(); ++characters) {
    const text::CodePoint point = text::decode_utf8(text.data() + at);
    special += is_special_character(point.code);
    at += static_cast<size_t>(point.num_bytes);
  }
  return static_cast<double>(special) / static_cast<double>(characters);
}

double listed_word_share(const std::vector<std::string>& lower_words, const WordSet& list, WordPairs pairs) {
  if (lower_words.empty()) return 0;
  int64_t listed = 0;
  for (const std::string& word : lower_words) listed += list.contains(word);
  const std::string between = pairs == WordPairs::kBlank ? " " : "";
  if (pairs != WordPairs::kNone)
    for (size_t at = 1; at < lower_words.size(); ++at)
      listed += list.contains(lower_words[at - 1] + between + lower_words[at]);
  return std::min(1.0, static_cast<double>(listed) / static_cast<double>(lower_words.size()));
}

}  // namespace espalier::curate
