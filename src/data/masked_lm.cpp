#include "data/masked_lm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace espalier::data {
namespace {

constexpr size_t kBertWords = 3, kT5Words = 10;  // of a run, at most
constexpr double kT5Stop = 0.2;                  // of the geometric distribution
constexpr double kBecomesMask = 0.8, kStays = 0.5;

// Words as ranges of `positions`: word w is positions[first[w]] to positions[first[w + 1] - 1].
struct Words {
  std::vector<int32_t> positions;
  std::vector<size_t> first = {0};
  size_t count() const { return first.size() - 1; }
};

Words words_of(std::span<const int32_t> ids, const SentenceVocabulary& vocabulary) {
  Words words;
  words.positions.reserve(ids.size());
  for (size_t at = 0; at < ids.size(); ++at) {
    if (ids[at] == vocabulary.cls || ids[at] == vocabulary.sep) continue;
    const bool continues = vocabulary.continues_word[static_cast<size_t>(ids[at])];
    words.positions.push_back(static_cast<int32_t>(at));
    if (continues && words.count() > 0)
      ++words.first.back();
    else
      words.first.push_back(words.positions.size());
  }
  return words;
}

// Running sums of the probabilities of 1 to 3 words, as numpy's choice() makes them: weights 1 / k, divided by their
// sum twice, summed, divided by the last sum.
std::array<double, kBertWords> cumulated_word_weights() {
  std::array<double, kBertWords> values;
  for (size_t words = 1; words <= kBertWords; ++words) values[words - 1] = 1.0 / static_cast<double>(words);
  for (int time = 0; time < 2; ++time) {
    const double sum = std::accumulate(values.begin(), values.end(), 0.0);
    for (double& value : values) value /= sum;
  }
  std::partial_sum(values.begin(), values.end(), values.begin());
  for (double& value : values) value /= values.back();
  return values;
}

// How many words the next run should have.
size_t draw_num_words(MaskingStyle style, NumpyRandom& random) {
  static const std::array<double, kBertWords> kCumulated = cumulated_word_weights();
  if (style == MaskingStyle::kBert) return 1 + random.choice(kCumulated);
  // 0 comes once in 2^53 draws.
  return static_cast<size_t>(std::clamp<int64_t>(random.geometric(kT5Stop), 1, kT5Words));
}

int32_t draw_replacement(int32_t id, const SentenceVocabulary& vocabulary, NumpyRandom& random) {
  if (random.uniform() < kBecomesMask) return vocabulary.mask;
  if (random.uniform() < kStays) return id;
  return static_cast<int32_t>(random.integer(0, vocabulary.size));
}

}  // namespace

MaskedText mask_text(std::span<const int32_t> ids, const SentenceVocabulary& vocabulary, const MaskingRequest& request,
                     NumpyRandom& random) {
  for (const int32_t id : ids)
    ESPALIER_CHECK(id >= 0 && id < vocabulary.size, "id ", id, " of a vocabulary of ", vocabulary.size);
  const Words words = words_of(ids, vocabulary);
  MaskedText masked{{ids.begin(), ids.end()}, {}, {}};
  // Half to even, as Python rounds, which is the default rounding of the processor.
  const double wanted = std::max(1.0, std::nearbyint(static_cast<double>(ids.size()) * request.probability));
  const double num_to_mask = std::min(request.max_predictions, wanted);
  const auto too_many = [&](size_t more) { return static_cast<double>(masked.positions.size() + more) > num_to_mask; };

  std::vector<int32_t> first_words(words.count());
  std::iota(first_words.begin(), first_words.end(), 0);
  random.shuffle(std::span(first_words));
  std::vector<bool> covered(ids.size());
  for (const int32_t first_word : first_words) {
    if (static_cast<double>(masked.positions.size()) >= num_to_mask) break;
    const auto word = static_cast<size_t>(first_word);
    const size_t begin = words.first[word];
    // A run ends with the text.
    const auto end_of = [&](size_t num_words) { return words.first[std::min(word + num_words, words.count())]; };
    size_t num_words = draw_num_words(request.style, random);
    while (num_words > 1 && too_many(end_of(num_words) - begin)) --num_words;
    const size_t end = end_of(num_words);
    if (too_many(end - begin)) continue;
    const std::span<const int32_t> run(&words.positions[begin], end - begin);
    if (std::any_of(run.begin(), run.end(), [&](int32_t at) { return covered[static_cast<size_t>(at)]; })) continue;
    masked.runs.push_back({masked.positions.size(), masked.positions.size() + run.size()});
    for (const int32_t position : run) {
      const auto at = static_cast<size_t>(position);
      covered[at] = true;
      masked.positions.push_back(position);
      if (request.style == MaskingStyle::kBert) masked.ids[at] = draw_replacement(ids[at], vocabulary, random);
    }
  }
  std::sort(masked.runs.begin(), masked.runs.end(),
            [&](const auto& a, const auto& b) { return masked.positions[a.begin] < masked.positions[b.begin]; });
  return masked;
}

}  // namespace espalier::data
