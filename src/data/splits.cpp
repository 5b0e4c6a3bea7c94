#include "data/splits.h"

#include <charconv>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/format.h"

namespace espalier::data {
namespace {

// Python's round(): half to even, which is the default rounding of the processor.
int64_t round_half_even(double value) { return static_cast<int64_t>(std::nearbyint(value)); }

[[noreturn]] void refuse_split(const std::string& message) { throw UserError(message, ExitCode::kUsage); }

}  // namespace

double parse_number(const std::string& text, const std::string& what) {
  std::string word = strip(text);
  if (word.starts_with('+')) word.erase(0, 1);
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || !std::isfinite(value))
    refuse_split(concat(what, ": '", text, "' is not a number"));
  return value;
}

Split parse_split(const std::string& text) {
  const std::string what = concat("--split '", text, "'");
  const char separator = text.find(',') != std::string::npos ? ',' : '/';
  const std::vector<std::string> words = espalier::split(text, separator);
  if (words.size() > 3)
    refuse_split(concat(what, " has ", words.size(), " parts, and there are three sets: train, valid, test. Write ",
                        words[0], separator, words[1], separator, words[2], "."));
  Split result;
  double sum = 0;
  for (size_t set = 0; set < words.size(); ++set) {
    result.weights[set] = parse_number(words[set], what);
    if (result.weights[set] < 0)
      refuse_split(concat(what, ": ", words[set], " is negative. Use weights of 0 or more."));
    sum += result.weights[set];
  }
  if (!(sum > 0)) refuse_split(concat(what, " gives no documents to any set. Use for example 949,50,1."));
  return result;
}

std::array<DocumentRange, 3> split_documents(const Split& split, int64_t num_documents) {
  double sum = 0;
  for (const double weight : split.weights) sum += weight;
  std::array<int64_t, 4> bounds{};
  for (size_t set = 0; set < 3; ++set)
    bounds[set + 1] = bounds[set] + round_half_even(split.weights[set] / sum * static_cast<double>(num_documents));
  const int64_t excess = bounds[3] - num_documents;
  for (size_t set = 1; set < 4; ++set) bounds[set] = std::max<int64_t>(bounds[set] - excess, 0);
  return {{{bounds[0], bounds[1]}, {bounds[1], bounds[2]}, {bounds[2], bounds[3]}}};
}

FractionRange parse_fraction_range(const std::string& text) {
  const std::string what = concat("range '", text, "'");
  const std::vector<std::string> words = espalier::split(text, ':');
  if (words.size() != 2) refuse_split(concat(what, " is not of the form a:b, for example 0:0.949"));
  const FractionRange range{parse_number(words[0], what), parse_number(words[1], what)};
  if (!(range.begin >= 0 && range.begin < range.end && range.end <= 1))
    refuse_split(concat(what, " must go up, from 0 to at most 1, for example 0:0.949"));
  return range;
}

DocumentRange documents_in_range(const FractionRange& range, int64_t num_documents) {
  const auto documents = static_cast<double>(num_documents);
  return {round_half_even(range.begin * documents), round_half_even(range.end * documents)};
}

}  // namespace espalier::data
