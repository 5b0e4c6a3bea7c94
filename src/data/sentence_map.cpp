#include "data/sentence_map.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "base/format.h"
#include "base/progress.h"

namespace espalier::data {
namespace {

// Documents of several sentences only: a document of one is taken however long it is.
bool has_long_sentence(const DocumentSizes& sizes, int64_t begin, int64_t end) {
  if (end - begin < 2) return false;
  for (int64_t sentence = begin; sentence < end; ++sentence)
    if (sizes[sentence] > kLongSentence) return true;
  return false;
}

// Draws the target lengths: one where a document begins and one after each row.
class TargetLengths {
 public:
  explicit TargetLengths(const SentenceMapRequest& request) : engine_(request.seed), longest_(request.max_length) {
    if (request.short_probability <= 0) return;
    constexpr double kMost = std::numeric_limits<int32_t>::max();
    one_in_ = static_cast<uint32_t>(std::min(std::round(1.0 / request.short_probability), kMost));
  }

  int64_t next() {
    if (one_in_ == 0) return longest_;
    const auto word = static_cast<uint32_t>(engine_());
    return word % one_in_ == 0 ? 2 + word % static_cast<uint32_t>(longest_ - 1) : longest_;
  }

 private:
  std::mt19937 engine_;
  int64_t longest_;
  uint32_t one_in_ = 0;  // 0: none is short
};

// Calls `emit` with the rows of one epoch.
template <class Emit>
void walk_epoch(const Sentences& sentences, const SentenceMapRequest& request, TargetLengths& targets, Emit&& emit) {
  for (int64_t document = request.documents.begin; document < request.documents.end; ++document) {
    int64_t first = sentences.documents[document];
    const int64_t end = sentences.documents[document + 1];
    if (end - first < request.min_sentences || has_long_sentence(sentences.sizes, first, end) || first == end) continue;
    int64_t length = 0, target = targets.next();
    for (int64_t sentence = first; sentence < end; ++sentence) {
      length += sentences.sizes[sentence];
      const int64_t left = end - sentence - 1;
      // A last sentence alone goes with those before it.
      const bool full = length >= target && left > 1 && sentence + 1 - first >= request.min_sentences;
      if (!full && left > 0) continue;
      emit(SentenceMap::Row{first, sentence + 1, target});
      first = sentence + 1;
      length = 0;
      target = targets.next();
    }
  }
}

[[noreturn]] void refuse_unusable(const DocumentSurvey& survey, const SentenceMapRequest& request) {
  std::string text =
      concat(request.name, ": none of its ", format_counted(survey.num_documents, "document"), " makes a sample: ");
  std::vector<std::string> reasons;
  if (survey.num_empty > 0) reasons.push_back(concat(format_count(survey.num_empty), " without a sentence"));
  if (survey.num_too_few > 0)
    reasons.push_back(concat(format_count(survey.num_too_few), " of fewer than ", request.min_sentences, " sentences"));
  if (survey.num_long_sentence > 0)
    reasons.push_back(concat(format_count(survey.num_long_sentence), " with a sentence of more than ", kLongSentence,
                             " tokens, which are left out as in Megatron"));
  throw UserError(
      concat(text, join(reasons, ", "), ". Give this set more documents, or split them into sentences with ",
             "'espalier preprocess --split-sentences'."),
      ExitCode::kBadData);
}

}  // namespace

DocumentSurvey DocumentSurvey::make(const Sentences& sentences, const SentenceMapRequest& request) {
  const auto [begin, end] = request.documents;
  ESPALIER_CHECK(begin >= 0 && begin <= end && end <= sentences.documents.count(), begin, " ", end);
  DocumentSurvey survey;
  survey.num_documents = request.documents.size();
  for (int64_t document = begin; document < end; ++document) {
    const int64_t first = sentences.documents[document], last = sentences.documents[document + 1];
    if (first < 0 || first > last || last > sentences.sizes.count())
      throw UserError(
          concat(request.name, ": document ", document, " is said to hold the sentences ", first, " to ", last, " of ",
                 sentences.sizes.count(), ". The .idx is damaged; 'espalier data check' reads all of it."),
          ExitCode::kBadData);
    for (int64_t sentence = first; sentence < last; ++sentence)
      if (sentences.sizes[sentence] < 0)
        throw UserError(
            concat(request.name, ": size of sequence ", sentence, ": expected 0 or more, found ",
                   sentences.sizes[sentence], ". The .idx is damaged; 'espalier data check' reads all of it."),
            ExitCode::kBadData);
    survey.num_sentences += last - first;
    if (first == last)
      ++survey.num_empty;
    else if (last - first < request.min_sentences)
      ++survey.num_too_few;
    else if (has_long_sentence(sentences.sizes, first, last))
      ++survey.num_long_sentence;
    else
      ++survey.num_used;
  }
  return survey;
}

IndexArray::Type SentenceMap::type_of(const Sentences& sentences) {
  return sentences.sizes.count() <= std::numeric_limits<uint32_t>::max() ? IndexArray::Type::kUint32
                                                                         : IndexArray::Type::kInt64;
}

SentenceMap SentenceMap::build(const Sentences& sentences, const SentenceMapRequest& request) {
  SentenceMap map(sentences, request);
  map.fill(sentences, request);
  return map;
}

SentenceMap::SentenceMap(const Sentences& sentences, const SentenceMapRequest& request) {
  ESPALIER_CHECK(request.max_length >= 2 && request.num_samples >= 0 && request.min_sentences >= 1);
  ESPALIER_CHECK(request.short_probability >= 0 && request.short_probability <= 1, request.short_probability);
  survey_ = DocumentSurvey::make(sentences, request);
  if (survey_.num_used == 0) refuse_unusable(survey_, request);
}

// Counts the rows, fills them in with the same draws, shuffles them.
void SentenceMap::fill(const Sentences& sentences, const SentenceMapRequest& request) {
  constexpr int64_t kReportEvery = 1 << 16;
  Progress progress(concat("map samples of ", request.name), 0, Progress::Unit::kItems, "steps");
  int64_t num_rows = 0, num_epochs = 0;
  TargetLengths counted(request);
  const auto count = [&](const Row&) {
    if (++num_rows % kReportEvery == 0) progress.advance(kReportEvery);
  };
  do {
    walk_epoch(sentences, request, counted, count);
    ++num_epochs;
    progress.set_total(3 * std::max(request.num_samples, num_rows));
  } while (num_rows < request.num_samples);
  progress.set_total(3 * num_rows);

  rows_ = IndexArray(type_of(sentences), num_rows, 3);
  rows_.visit([&](auto values) {
    using Value = typename decltype(values)::value_type;
    TargetLengths targets(request);
    size_t at = 0;
    const auto fill_in = [&](const Row& row) {
      for (const int64_t value : {row.begin, row.end, row.target}) values[at++] = static_cast<Value>(value);
      if (at % (3 * kReportEvery) == 0) progress.advance(kReportEvery);
    };
    for (int64_t epoch = 0; epoch < num_epochs; ++epoch) walk_epoch(sentences, request, targets, fill_in);
    ESPALIER_CHECK(at == values.size());

    std::mt19937_64 engine(static_cast<uint64_t>(request.seed) + 1);
    for (auto last = static_cast<uint64_t>(num_rows) - 1; last > 0; --last) {
      const uint64_t other = engine() % (last + 1);
      std::swap_ranges(&values[3 * last], &values[3 * last] + 3, &values[3 * other]);
      if (last % kReportEvery == 0) progress.advance(kReportEvery);
    }
  });
  progress.finish(concat(format_count(num_rows), " samples of ", format_count(num_epochs), " epochs"));
}

}  // namespace espalier::data
