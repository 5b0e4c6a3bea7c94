#include "eval/translation_scores.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "base/error.h"
#include "base/format.h"
#include "text/python_text.h"
#include "text/utf8.h"

namespace espalier::eval {
namespace {

using text::python::replace_all;
using text::python::split_words;
using text::python::strip_right;

using Ngrams = std::map<std::string, int64_t>;
using Words = std::vector<std::string>;

constexpr int kBleuOrder = 4;
constexpr int kCharacterOrder = 6;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_point(char c) { return c == '.' || c == ','; }
bool is_dash(char c) { return c == '-'; }
bool is_no_digit(char c) { return !is_digit(c); }

// What 13a parts from everything.
bool stands_alone(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') ||
         (c >= ':' && c <= '@') || c == '/';
}

// Blanks around, or after, the second of two neighbours; pairs do not overlap. Bytes serve for characters: those that
// are looked for are ASCII.
std::string part_pairs(const std::string& text, bool (*first)(char), bool (*second)(char), const char* before,
                       const char* between, const char* after) {
  std::string parted;
  for (size_t at = 0; at < text.size();) {
    if (at + 1 == text.size() || !first(text[at]) || !second(text[at + 1])) {
      parted += text[at++];
      continue;
    }
    parted += concat(before, text[at], between, text[at + 1], after);
    at += 2;
  }
  return parted;
}

Words words_of(const std::string& text) {
  Words words;
  for (const std::string_view word : split_words(text)) words.emplace_back(word);
  return words;
}

std::vector<Ngrams> ngrams_of(const Words& units, int order, const char* between) {
  std::vector<Ngrams> all(static_cast<size_t>(order));
  for (size_t begin = 0; begin < units.size(); ++begin) {
    std::string ngram;
    for (size_t n = 0; n < all.size() && begin + n < units.size(); ++n) {
      if (n > 0) ngram += between;
      ngram += units[begin + n];
      ++all[n][ngram];
    }
  }
  return all;
}

int64_t total_of(const Ngrams& ngrams) {
  int64_t total = 0;
  for (const auto& [ngram, count] : ngrams) total += count;
  return total;
}

int64_t shared_of(const Ngrams& ours, const Ngrams& theirs) {
  int64_t shared = 0;
  for (const auto& [ngram, count] : ours)
    if (const auto found = theirs.find(ngram); found != theirs.end()) shared += std::min(count, found->second);
  return shared;
}

// Without blanks.
Words characters_of(const std::string& text) {
  Words characters;
  for (const std::string_view word : split_words(text))
    for (size_t at = 0; at < word.size();) {
      const auto size = static_cast<size_t>(text::decode_utf8(word.data() + at).num_bytes);
      characters.emplace_back(word.substr(at, size));
      at += size;
    }
  return characters;
}

bool is_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

// Words, with one mark at the end of each apart, or else one at its beginning.
Words chrf_words(const std::string& text) {
  Words words;
  for (const std::string_view word : split_words(text)) {
    if (text::python::num_characters(word) == 1) {
      words.emplace_back(word);
    } else if (is_punctuation(word.back())) {
      words.emplace_back(word.substr(0, word.size() - 1));
      words.emplace_back(1, word.back());
    } else if (is_punctuation(word.front())) {
      words.emplace_back(1, word.front());
      words.emplace_back(word.substr(1));
    } else {
      words.emplace_back(word);
    }
  }
  return words;
}

// For each order the n-grams of the text (none where the reference has none), of the reference, and of both.
Counts chrf_counts_of(const std::string& text, const std::string& reference, int word_order) {
  auto ours = ngrams_of(characters_of(text), kCharacterOrder, ""),
       theirs = ngrams_of(characters_of(reference), kCharacterOrder, "");
  for (Ngrams& ngrams : ngrams_of(chrf_words(text), word_order, " ")) ours.push_back(std::move(ngrams));
  for (Ngrams& ngrams : ngrams_of(chrf_words(reference), word_order, " ")) theirs.push_back(std::move(ngrams));
  Counts counts;
  for (size_t n = 0; n < ours.size(); ++n) {
    const int64_t expected = total_of(theirs[n]);
    for (const int64_t count : {expected == 0 ? 0 : total_of(ours[n]), expected, shared_of(ours[n], theirs[n])})
      counts.push_back(count);
  }
  return counts;
}

}  // namespace

std::string tokenize_13a(const std::string& text) {
  std::string line = replace_all(replace_all(replace_all(text, "<skipped>", ""), "-\n", ""), "\n", " ");
  for (const auto& [entity, character] : {std::pair{"&quot;", "\""}, {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}})
    line = replace_all(line, entity, character);
  std::string parted;
  for (const char c : " " + line + " ") parted += stands_alone(c) ? concat(" ", c, " ") : std::string(1, c);
  parted = part_pairs(parted, is_no_digit, is_point, "", " ", " ");
  parted = part_pairs(parted, is_point, is_no_digit, " ", " ", "");
  parted = part_pairs(parted, is_digit, is_dash, "", " ", " ");
  return join(words_of(parted), " ");
}

// Lengths of the text and of its reference, then for each order the n-grams that both have, then those of the text.
Counts bleu_counts(const std::string& text, const std::string& reference) {
  const Words words = words_of(tokenize_13a(std::string(strip_right(text)))),
              expected = words_of(tokenize_13a(std::string(strip_right(reference))));
  const auto ours = ngrams_of(words, kBleuOrder, " "), theirs = ngrams_of(expected, kBleuOrder, " ");
  Counts counts = {static_cast<int64_t>(words.size()), static_cast<int64_t>(expected.size())};
  for (size_t n = 0; n < ours.size(); ++n) counts.push_back(shared_of(ours[n], theirs[n]));
  for (const Ngrams& ngrams : ours) counts.push_back(total_of(ngrams));
  return counts;
}

double bleu_of(const Counts& counts) {
  constexpr double kLogOfZero = -9999999999;
  ESPALIER_CHECK(counts.size() == 2 + 2 * kBleuOrder, counts.size());
  const auto length = static_cast<double>(counts[0]), expected = static_cast<double>(counts[1]);
  double brevity = 1, smooth = 1, sum = 0;
  if (length < expected) brevity = length > 0 ? std::exp(1 - expected / length) : 0;
  if (std::all_of(counts.begin() + 2, counts.begin() + 2 + kBleuOrder, [](int64_t count) { return count == 0; }))
    return 0;
  bool has_more = true;
  for (size_t n = 0; n < kBleuOrder; ++n) {
    const auto shared = static_cast<double>(counts[2 + n]), total = static_cast<double>(counts[2 + kBleuOrder + n]);
    has_more = has_more && total > 0;  // a text of few words has no longer n-grams
    if (has_more && shared == 0) smooth *= 2;
    const double precision = !has_more ? 0 : shared == 0 ? 100 / (smooth * total) : 100 * shared / total;
    sum += precision == 0 ? kLogOfZero : std::log(precision);
  }
  return brevity * std::exp(sum / kBleuOrder);
}

Counts chrf_counts(const std::string& text, const std::string& reference) {
  return chrf_counts_of(text, reference, /*word_order=*/0);
}
Counts chrf_plus_counts(const std::string& text, const std::string& reference) {
  return chrf_counts_of(text, reference, /*word_order=*/2);
}

double chrf_of(const Counts& counts) {
  constexpr double kFactor = 4;  // recall counts twice as much as precision, squared
  double precision = 0, recall = 0, num_orders = 0;
  for (size_t n = 0; n + 2 < counts.size(); n += 3) {
    const auto ours = static_cast<double>(counts[n]), theirs = static_cast<double>(counts[n + 1]),
               shared = static_cast<double>(counts[n + 2]);
    if (ours == 0 || theirs == 0) continue;
    precision += shared / ours;
    recall += shared / theirs;
    ++num_orders;
  }
  if (num_orders == 0) return 0;
  precision /= num_orders;
  recall /= num_orders;
  if (precision + recall == 0) return 0;
  double score = (1 + kFactor) * precision * recall;
  score /= kFactor * precision + recall;
  return 100 * score;
}

}  // namespace espalier::eval
