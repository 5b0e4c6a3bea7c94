// The rules for quality and repetition of Gopher's training data (Rae et al. 2021, appendix A.1.1). Words are what
// stands between blanks; lengths and shares count characters. What the paper leaves open is done as datatrove does it.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "curate/steps/lines.h"
#include "curate/steps/steps.h"
#include "text/python_text.h"
#include "text/unicode_table.h"
#include "text/utf8.h"

namespace espalier::curate {
namespace {

using text::python::num_characters;
using Words = std::vector<std::string_view>;

struct GopherLimits {
  int64_t least_words = 50, most_words = 100000;
  double least_mean_length = 3, most_mean_length = 10, most_symbols = 0.1, most_bullets = 0.9, most_ellipses = 0.3,
         least_alphabetic = 0.8;
  int64_t least_stop_words = 2;
  bool repetition = true;
};

// The most that windows of so many words may make of a text.
struct WindowLimit {
  size_t words;
  double share;
};
constexpr WindowLimit kTopLimits[] = {{2, 0.2}, {3, 0.18}, {4, 0.16}};
constexpr WindowLimit kRepeatedLimits[] = {{5, 0.15}, {6, 0.14}, {7, 0.13}, {8, 0.12}, {9, 0.11}, {10, 0.1}};
constexpr double kMostRepeatedLines = 0.3, kMostRepeatedCharacters = 0.2;

bool has_letter(std::string_view word) {
  for (size_t at = 0; at < word.size();) {
    const text::CodePoint point = text::decode_utf8(word.data() + at);
    if (text::is_letter(point.code)) return true;
    at += static_cast<size_t>(point.num_bytes);
  }
  return false;
}

int64_t occurrences(std::string_view text, std::string_view part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

double share(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string joined(const Words& words, size_t first, size_t count) {
  std::string text;
  for (size_t index = first; index < first + count; ++index) {
    if (index > first) text += ' ';
    text += words[index];
  }
  return text;
}

// Characters in the commonest window, all its occurrences together; of equally common ones the first counts.
int64_t characters_of_top(const Words& words, size_t size) {
  struct Seen {
    int64_t count = 0;
    size_t first = 0;
  };
  std::unordered_map<std::string, Seen> seen;
  const std::pair<const std::string, Seen>* top = nullptr;
  for (size_t first = 0; first + size <= words.size(); ++first) {
    const auto entry = seen.try_emplace(joined(words, first, size), Seen{0, first}).first;
    ++entry->second.count;
  }
  for (const auto& entry : seen)
    if (top == nullptr || entry.second.count > top->second.count ||
        (entry.second.count == top->second.count && entry.second.first < top->second.first))
      top = &entry;
  return top == nullptr || top->second.count == 1 ? 0 : top->second.count * num_characters(top->first);
}

// Characters in windows that occurred before, continuing after each.
int64_t characters_of_repeated(const Words& words, size_t size) {
  std::unordered_set<std::string> seen;
  int64_t characters = 0;
  for (size_t first = 0; first + size <= words.size();) {
    std::string window;
    for (size_t index = first; index < first + size; ++index) window += words[index];
    const int64_t length = num_characters(window);
    if (seen.insert(std::move(window)).second) {
      ++first;
    } else {
      characters += length;
      first += size;
    }
  }
  return characters;
}

struct Repeats {
  int64_t parts = 0, characters = 0;
};
Repeats repeats_of(const Words& parts) {
  std::unordered_set<std::string_view> seen;
  Repeats repeats;
  for (const std::string_view part : parts)
    if (!seen.insert(part).second) {
      ++repeats.parts;
      repeats.characters += num_characters(part);
    }
  return repeats;
}

// Stretches between runs of at least `least` line ends.
Words parts_between_line_ends(std::string_view text, size_t least) {
  Words parts;
  for (size_t at = 0, begin = 0; at <= text.size();) {
    size_t end = at;
    while (end < text.size() && text[end] == '\n') ++end;
    if (at == text.size() || end - at >= least) {
      parts.push_back(text.substr(begin, at - begin));
      begin = end;
      if (at == text.size()) break;
    }
    at = std::max(end, at + 1);
  }
  return parts;
}

class GopherStep : public JudgedStep {
 public:
  explicit GopherStep(const GopherLimits& limits) : limits_(limits) {}

 private:
  void judge(const Document& document, Judge& judge) const override {
    const std::string_view text = text::python::strip(document.text);
    const Words words = text::python::split_words(text);
    if (check_words(text, words, judge) && check_lines(text, judge) && limits_.repetition)
      check_repetition(text, words, judge);
  }

  bool check_words(std::string_view text, const Words& words, Judge& judge) const {
    const auto num_words = static_cast<int64_t>(words.size());
    if (!judge.least("few_words", static_cast<double>(num_words), static_cast<double>(limits_.least_words)) ||
        !judge.most("many_words", static_cast<double>(num_words), static_cast<double>(limits_.most_words)))
      return false;
    int64_t characters = 0, alphabetic = 0;
    std::unordered_set<std::string_view> stop_words;
    for (const std::string_view word : words) {
      characters += num_characters(word);
      alphabetic += has_letter(word);
      for (const std::string_view stop_word : {"the", "be", "to", "of", "and", "that", "have", "with"})
        if (word == stop_word) stop_words.insert(stop_word);
    }
    const double mean = share(characters, num_words);
    const int64_t ellipses = occurrences(text, "...") + occurrences(text, "…");
    return judge.least("short_words", mean, limits_.least_mean_length) &&
           judge.most("long_words", mean, limits_.most_mean_length) &&
           judge.most("hashes", share(occurrences(text, "#"), num_words), limits_.most_symbols) &&
           judge.most("ellipses", share(ellipses, num_words), limits_.most_symbols) &&
           judge.least("alphabetic", share(alphabetic, num_words), limits_.least_alphabetic) &&
           judge.least("stop_words", static_cast<double>(stop_words.size()),
                       static_cast<double>(limits_.least_stop_words));
  }

  bool check_lines(std::string_view text, Judge& judge) const {
    const Words lines = split_lines(text);
    int64_t bullets = 0, ellipses = 0;
    for (const std::string_view line : lines) {
      const std::string_view begin = text::python::strip_left(line), end = text::python::strip_right(line);
      bullets += begin.starts_with("•") || begin.starts_with("-");
      ellipses += end.ends_with("...") || end.ends_with("…");
    }
    const auto num_lines = static_cast<int64_t>(lines.size());
    return judge.most("bullet_lines", share(bullets, num_lines), limits_.most_bullets) &&
           judge.most("ellipsis_lines", share(ellipses, num_lines), limits_.most_ellipses);
  }

  static void check_repetition(std::string_view text, const Words& words, Judge& judge) {
    const int64_t characters = num_characters(text);
    for (const bool paragraphs : {true, false}) {
      const Words parts = parts_between_line_ends(text, paragraphs ? 2 : 1);
      const Repeats repeats = repeats_of(parts);
      const double of_parts = share(repeats.parts, static_cast<int64_t>(parts.size()));
      const double of_characters = share(repeats.characters, characters);
      if (!judge.most(paragraphs ? "repeated_paragraphs" : "repeated_lines", of_parts, kMostRepeatedLines) ||
          !judge.most(paragraphs ? "repeated_paragraph_characters" : "repeated_line_characters", of_characters,
                      kMostRepeatedCharacters))
        return;
    }
    for (const WindowLimit& limit : kTopLimits)
      if (!judge.most(concat("top_", limit.words, "_words").c_str(),
                      share(characters_of_top(words, limit.words), characters), limit.share))
        return;
    for (const WindowLimit& limit : kRepeatedLimits)
      if (!judge.most(concat("repeated_", limit.words, "_words").c_str(),
                      share(characters_of_repeated(words, limit.words), characters), limit.share))
        return;
  }

  const GopherLimits& limits_;
};

class GopherMaker : public StepMaker {
 public:
  void add_rows(OptionTable& table) override {
    table.add("--least-words", limits_.least_words, "words of a document").minimum(0);
    table.add("--most-words", limits_.most_words, "words of a document").minimum(0);
    table.add("--least-mean-length", limits_.least_mean_length, "of words, in characters").minimum(0);
    table.add("--most-mean-length", limits_.most_mean_length, "of words, in characters").minimum(0);
    table.add("--most-symbols", limits_.most_symbols, "# for each word, and ellipses for each word").minimum(0);
    table.add("--most-bullets", limits_.most_bullets, "share of lines that begin with a bullet").minimum(0).maximum(1);
    table.add("--most-ellipses", limits_.most_ellipses, "share of lines that end with an ellipsis")
        .minimum(0)
        .maximum(1);
    table.add("--least-alphabetic", limits_.least_alphabetic, "share of words with a letter").minimum(0).maximum(1);
    table
        .add("--least-stop-words", limits_.least_stop_words, "different ones of the, be, to, of, and, that, have, with")
        .minimum(0)
        .maximum(8);
    table.add_negative("--no-repetition", limits_.repetition, "leave out the rules for repeated lines and words");
  }
  void check(Problems& problems) override {
    if (limits_.least_words > limits_.most_words)
      problems.add("--least-words ", limits_.least_words, " is more than --most-words ", limits_.most_words);
    if (limits_.least_mean_length > limits_.most_mean_length)
      problems.add("--least-mean-length ", limits_.least_mean_length, " is more than --most-mean-length ",
                   limits_.most_mean_length);
  }
  std::unique_ptr<Step> make_step() const override { return std::make_unique<GopherStep>(limits_); }

 private:
  GopherLimits limits_;
};

}  // namespace

std::unique_ptr<StepMaker> gopher_maker() { return std::make_unique<GopherMaker>(); }

}  // namespace espalier::curate
