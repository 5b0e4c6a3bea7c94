#include "data/block_map.h"

#include <algorithm>
#include <random>

#include "base/error.h"
#include "base/format.h"

namespace espalier::data {
namespace {

bool makes_blocks(const Sentences& sentences, int64_t document, int64_t min_sentences) {
  const int64_t first = sentences.documents[document], end = sentences.documents[document + 1];
  if (first == end || end - first < min_sentences) return false;
  for (int64_t sentence = first; sentence < end; ++sentence)
    if (sentences.sizes[sentence] > kLongSentence) return false;
  return true;
}

// Calls `emit` with the rows of one epoch.
template <class Emit>
void walk_blocks(const Sentences& sentences, const DocumentSizes& titles, const BlockMapRequest& request, Emit&& emit) {
  int64_t block = 0;
  for (int64_t document = request.documents.begin; document < request.documents.end; ++document) {
    if (!makes_blocks(sentences, document, request.min_sentences)) continue;
    int64_t first = sentences.documents[document], length = 0;
    const int64_t end = sentences.documents[document + 1], target = request.max_length - titles[document];
    for (int64_t sentence = first; sentence < end; ++sentence) {
      length += sentences.sizes[sentence];
      const int64_t left = end - sentence - 1;
      // What is left must be enough for a block of its own.
      const bool full =
          length >= target && left >= request.min_sentences && sentence + 1 - first >= request.min_sentences;
      if (!full && left > 0) continue;
      emit(BlockMap::Row{first, sentence + 1, document, block++});
      first = sentence + 1;
      length = 0;
    }
  }
}

// As for other samples of sentences, but that a document of one sentence may be too long as well.
DocumentSurvey survey_of(const Sentences& sentences, const BlockMapRequest& request) {
  SentenceMapRequest counted;
  counted.documents = request.documents;
  counted.min_sentences = request.min_sentences;
  counted.name = request.name;
  DocumentSurvey survey = DocumentSurvey::make(sentences, counted);
  int64_t num_used = 0;
  for (int64_t document = request.documents.begin; document < request.documents.end; ++document)
    num_used += makes_blocks(sentences, document, request.min_sentences);
  survey.num_long_sentence += survey.num_used - num_used;
  survey.num_used = num_used;
  return survey;
}

[[noreturn]] void refuse_without_blocks(const DocumentSurvey& survey, const BlockMapRequest& request) {
  const char* remedy = request.min_sentences > 1 ? ", or use documents of one sentence with --use-one-sent-docs" : "";
  throw UserError(
      concat(request.name, ": none of its ", format_counted(survey.num_documents, "document"),
             " makes a block: ", format_count(survey.num_empty), " without a sentence, ",
             format_count(survey.num_too_few), " of fewer than ", request.min_sentences, ", ",
             format_count(survey.num_long_sentence), " with a sentence of more than ", kLongSentence,
             " tokens, which are left out as in Megatron. Give this set more documents, or split them into sentences ",
             "with 'espalier preprocess --split-sentences'", remedy, "."),
      ExitCode::kBadData);
}

void check_titles(const Sentences& sentences, const DocumentSizes& titles, const BlockMapRequest& request) {
  ESPALIER_CHECK(titles.count() == sentences.documents.count(), titles.count(), " ", sentences.documents.count());
  for (int64_t document = request.documents.begin; document < request.documents.end; ++document) {
    const int64_t size = titles[document];
    if (size >= 0 && size <= request.max_length) continue;
    if (size > 0 && !makes_blocks(sentences, document, request.min_sentences)) continue;
    throw UserError(concat(request.name, ": the title of document ", document, " has ", size, " tokens; a sample has ",
                           "room for 0 to ", request.max_length,
                           " besides its special ones. Shorten the titles or raise --seq-length."),
                    ExitCode::kBadData);
  }
}

}  // namespace

BlockMap BlockMap::build(const Sentences& sentences, const DocumentSizes& titles, const BlockMapRequest& request) {
  ESPALIER_CHECK(request.max_length >= 1 && request.num_samples >= 0 && request.min_sentences >= 1);
  BlockMap map;
  map.survey_ = survey_of(sentences, request);
  if (map.survey_.num_used == 0) refuse_without_blocks(map.survey_, request);
  check_titles(sentences, titles, request);

  int64_t per_epoch = 0;
  walk_blocks(sentences, titles, request, [&](const Row&) { ++per_epoch; });
  const int64_t num_epochs = std::max<int64_t>(1, (request.num_samples + per_epoch - 1) / per_epoch);
  map.rows_ = IndexArray(SentenceMap::type_of(sentences), num_epochs * per_epoch, 4);
  map.rows_.visit([&](auto values) {
    using Value = typename decltype(values)::value_type;
    size_t at = 0;
    walk_blocks(sentences, titles, request, [&](const Row& row) {
      for (const int64_t value : {row.first, row.end, row.document, row.block})
        values[at++] = static_cast<Value>(value);
    });
    // Every epoch has the same rows.
    for (; at < values.size(); ++at) values[at] = values[at - static_cast<size_t>(4 * per_epoch)];

    std::mt19937_64 engine(static_cast<uint64_t>(request.seed) + 1);
    for (size_t last = values.size() / 4 - 1; last > 0; --last) {
      const size_t other = engine() % (last + 1);
      std::swap_ranges(&values[4 * last], &values[4 * last] + 4, &values[4 * other]);
    }
  });
  return map;
}

}  // namespace espalier::data
