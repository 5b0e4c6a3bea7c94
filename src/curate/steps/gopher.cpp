// The rules for quality and repetition of Gopher's training data (Rae et al. 2021, appendix A.1.1). Words are what
// stands between blanks; lengths and shares count characters. What the paper leaves open is done as datatrove does it.
#include <algorithm>
#include <bit>
#include <unordered_set>

#include "base/hash.h"
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

// Windows of words: stretches of one text in which the words follow one another. Equal ones are found by their hashes
// and then compared; each is known by the place of the first.
class Windows {
 public:
  // `between`: what stands between two words.
  Windows(const Words& words, std::string_view between) : between_(num_characters(between)) {
    for (const std::string_view word : words) {
      begins_.push_back(static_cast<uint32_t>(text_.size()));
      characters_.push_back(characters_.empty() ? 0 : characters_.back() + between_);
      text_ += word;
      ends_.push_back(static_cast<uint32_t>(text_.size()));
      characters_.back() += num_characters(word);
      text_ += between;
    }
    counts_.resize(words.size());
    places_.resize(std::bit_ceil(2 * words.size() + 1));
  }

  // Characters in the commonest window, all its occurrences together; of equally common ones the first counts.
  int64_t characters_of_top(size_t size) {
    start();
    uint32_t top = 0;
    for (size_t first = 0; first + size <= begins_.size(); ++first) ++counts_[first_like(first, size)];
    for (uint32_t first = 0; first + size <= begins_.size(); ++first)
      if (counts_[first] > counts_[top]) top = first;
    return begins_.size() < size || counts_[top] == 1 ? 0 : counts_[top] * characters(top, size);
  }

  // Characters in windows that occurred before, continuing after each.
  int64_t characters_of_repeated(size_t size) {
    start();
    int64_t repeated = 0;
    for (size_t first = 0; first + size <= begins_.size();) {
      if (first_like(first, size) == first) {
        ++first;
      } else {
        repeated += characters(first, size);
        first += size;
      }
    }
    return repeated;
  }

 private:
  struct Place {
    uint32_t hash = 0, window = 0;  // of the window, and one more than where it begins; 0: none
  };

  void start() {
    std::fill(places_.begin(), places_.end(), Place{});
    std::fill(counts_.begin(), counts_.end(), 0);
  }
  std::string_view window(size_t first, size_t size) const {
    return std::string_view(text_).substr(begins_[first], ends_[first + size - 1] - begins_[first]);
  }
  int64_t characters(size_t first, size_t size) const {
    return characters_[first + size - 1] - (first == 0 ? 0 : characters_[first - 1] + between_);
  }
  // Where the first window begins that is equal to this one, which is remembered if there is none.
  size_t first_like(size_t first, size_t size) {
    const std::string_view sought = window(first, size);
    const uint64_t hash = hash64(sought.data(), sought.size());
    for (size_t at = hash >> 32;; ++at) {
      Place& place = places_[at & (places_.size() - 1)];
      if (place.window == 0) {
        place = {static_cast<uint32_t>(hash), static_cast<uint32_t>(first + 1)};
        return first;
      }
      if (place.hash == static_cast<uint32_t>(hash) && window(place.window - 1, size) == sought)
        return place.window - 1;
    }
  }

  int64_t between_;
  std::string text_;
  std::vector<uint32_t> begins_, ends_;  // of each word
  std::vector<int64_t> characters_;      // up to the end of each word
  std::vector<int64_t> counts_;
  std::vector<Place> places_;
};

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
    Windows spaced(words, " ");
    for (const WindowLimit& limit : kTopLimits)
      if (!judge.most(concat("top_", limit.words, "_words").c_str(),
                      share(spaced.characters_of_top(limit.words), characters), limit.share))
        return;
    Windows joined(words, "");
    for (const WindowLimit& limit : kRepeatedLimits)
      if (!judge.most(concat("repeated_", limit.words, "_words").c_str(),
                      share(joined.characters_of_repeated(limit.words), characters), limit.share))
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
