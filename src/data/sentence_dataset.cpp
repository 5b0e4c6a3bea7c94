#include "data/sentence_dataset.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "data/internal/set_parts.h"
#include "data/sentence_map_cache.h"
#include "data/token_files.h"
#include "data/token_probe.h"

namespace espalier::data {
namespace {

Sentences sentences_of(const TokenStore& store) { return {store.sizes(), store.document_marks()}; }

std::string survey_text(const SentenceDataset::Part& part, int64_t min_sentences) {
  const DocumentSurvey& survey = part.map.survey();
  std::string text = concat(format_count(survey.num_documents), " documents (", format_count(survey.num_sentences),
                            " sentences) of ", part.store->prefix());
  std::vector<std::string> without;
  if (survey.num_empty > 0) without.push_back(concat(format_count(survey.num_empty), " without a sentence"));
  if (survey.num_too_few > 0)
    without.push_back(concat(format_count(survey.num_too_few), " of fewer than ", min_sentences, " sentences"));
  if (survey.num_long_sentence > 0)
    without.push_back(
        concat(format_count(survey.num_long_sentence), " with a sentence of over ", kLongSentence, " tokens"));
  return without.empty() ? text : concat(text, ", less ", join(without, " and "));
}

void check_ids(const TokenStore& store, int64_t sentence, std::span<const int32_t> ids, int64_t vocab_size) {
  for (size_t at = 0; at < ids.size(); ++at)
    if (ids[at] < 0 || ids[at] >= vocab_size)
      throw UserError(concat("'", store.files().tokens, "', sequence ", sentence, ", token ", at,
                             ": expected an id below the ", format_count(vocab_size), " of the vocabulary, found ",
                             ids[at], ". The data were made with another tokenizer, or are damaged."),
                      ExitCode::kBadData);
}

// Documents of one sentence, as far as one has to look.
struct Boundaries {
  bool any = false;      // some document has two sentences
  int64_t num_long = 0;  // else: documents of more tokens than a sample holds
};

Boundaries boundaries_of(const TokenStore& store, int64_t max_length) {
  Boundaries found;
  for (int64_t document = 0; document < store.num_documents() && !found.any; ++document)
    found.any = store.first_sequence(document + 1) - store.first_sequence(document) > 1;
  if (found.any) return found;
  for (int64_t sequence = 0; sequence < store.num_sequences(); ++sequence)
    found.num_long += store.size(sequence) > max_length;
  return found;
}

void check_boundaries(const TokenStore& store, const SentenceSampleOptions& samples, Problems& problems) {
  const Boundaries found = boundaries_of(store, samples.max_length());
  if (found.any || store.num_documents() == 0) return;
  const std::string what = concat("'", store.prefix(), "' does not say where sentences end: each of its ",
                                  format_counted(store.num_documents(), "document"), " is a single sequence");
  const std::string remedy = "Rebuild it with 'espalier preprocess --split-sentences'.";
  const std::string loss = concat(format_count(found.num_long), " of them have more than the ", samples.max_length(),
                                  " tokens of a sample, and the rest would never be read");
  if (samples.min_sentences() > 1)
    problems.add(what, ", and BERT's samples are made of two halves. ", remedy,
                 " Documents that are single sentences can be read with --bert-no-binary-head.");
  else if (found.num_long > 0 && samples.model == SentenceModel::kBert)
    problems.add(what, "; ", loss, ". ", remedy);
  else if (found.num_long > 0)
    warn_once(concat(what, "; ", loss, ". ", remedy));
}

}  // namespace

void SentenceDataset::probe_ids(int64_t vocab_size) const {
  for (const Part& part : parts_)
    if (const auto problem = data::probe_ids(*part.store, {0, part.store->num_sequences()}, vocab_size))
      throw UserError(*problem, ExitCode::kBadData);
}

std::vector<std::string> SentenceDataset::prefixes() const {
  std::vector<std::string> prefixes;
  for (const Part& part : parts_) prefixes.push_back(part.store->prefix());
  return prefixes;
}

void SentenceDataset::read(int64_t number, Sample& sample) const {
  ESPALIER_CHECK(number >= 0 && number < size(), "sample ", number, " of ", size());
  const BlendIndex::Place at = place(number);
  const Part& part = parts_[static_cast<size_t>(at.set)];
  const SentenceMap::Row row = part.map[at.sample];
  std::vector<int64_t> ends;
  SentenceRun run = run_of(at, ends);
  std::vector<int32_t> ids(static_cast<size_t>(ends.back()));
  int32_t* next = ids.data();
  for (int64_t sentence = row.begin; sentence < row.end; ++sentence) {
    const int64_t tokens = part.store->size(sentence);
    part.store->read(sentence, 0, tokens, next);
    check_ids(*part.store, sentence, {next, static_cast<size_t>(tokens)}, options_.vocabulary.size);
    next += tokens;
  }
  run.ids = ids;
  sample.source = at.set;
  maker_->make(run, sample);
}

SentenceRun SentenceDataset::run_of(const BlendIndex::Place& place, std::vector<int64_t>& ends) const {
  const Part& part = parts_[static_cast<size_t>(place.set)];
  const SentenceMap::Row row = part.map[place.sample];
  ends.clear();
  int64_t length = 0;
  for (int64_t sentence = row.begin; sentence < row.end; ++sentence)
    ends.push_back(length += part.store->size(sentence));
  // numpy's seeds have 32 bits.
  return {{}, ends, row.target, static_cast<uint32_t>(seed_ + place.sample)};
}

std::vector<TracedFile> SentenceDataset::traced_files() const {
  std::vector<TracedFile> files;
  for (const Part& part : parts_)
    files.push_back(
        {part.store.get(),
         static_cast<int64_t>(files.size()),
         part.store->prefix(),
         {part.store->first_sequence(part.documents.begin), part.store->first_sequence(part.documents.end)}});
  return files;
}

std::vector<SamplePiece> SentenceDataset::pieces_of(const BlendIndex::Place& place) const {
  const Part& part = parts_[static_cast<size_t>(place.set)];
  const int64_t first = part.map[place.sample].begin;
  std::vector<int64_t> ends;
  std::vector<SamplePiece> pieces;
  for (const SentenceStretch& stretch : maker_->stretches(run_of(place, ends)))
    for (size_t sentence = 0; sentence < ends.size(); ++sentence) {
      const int64_t before = sentence == 0 ? 0 : ends[sentence - 1];
      const int64_t begin = std::max(stretch.begin, before), end = std::min(stretch.end, ends[sentence]);
      if (begin < end)
        pieces.push_back({part.store.get(), first + static_cast<int64_t>(sentence), begin - before, end - begin,
                          stretch.at + begin - stretch.begin});
    }
  return pieces;
}

std::vector<SamplePiece> SentenceDataset::pieces(int64_t number) const { return pieces_of(place(number)); }

std::vector<FoundPiece> SentenceDataset::find(const TracedFile& file, const DocumentRange& sequences) const {
  const SentenceMap& map = parts_[static_cast<size_t>(file.source)].map;
  std::vector<FoundPiece> all;
  map.rows().visit([&](auto values) {
    for (int64_t row = 0; row < map.size(); ++row) {
      const size_t at = 3 * static_cast<size_t>(row);
      if (static_cast<int64_t>(values[at]) >= sequences.end || static_cast<int64_t>(values[at + 1]) <= sequences.begin)
        continue;
      const std::optional<int64_t> number = blend_ ? blend_->sample_at({file.source, row}) : std::optional(row);
      if (!number) continue;
      for (const SamplePiece& piece : pieces_of({file.source, row}))
        if (sequences.begin <= piece.sequence && piece.sequence < sequences.end) all.push_back({*number, piece});
    }
  });
  return all;
}

std::string SentenceDataset::description() const {
  std::string text = concat(name_, ": ", format_count(size()), " samples, ", options_.description());
  for (const Part& part : parts_)
    text += concat(parts_.size() == 1 ? "; " : "\n  ", survey_text(part, options_.min_sentences()));
  return text;
}

OrderFingerprint SentenceDataset::fingerprint(const std::string& reading) const {
  OrderFingerprint fingerprint{
      options_.sequence_length, seed_, concat(reading, "; ", options_.description()), {}, {}, {}};
  for (const Part& part : parts_) {
    const Sentences sentences = sentences_of(*part.store);
    const DocumentRange sequences{sentences.documents[part.documents.begin], sentences.documents[part.documents.end]};
    fingerprint.parts.push_back({.prefix = part.store->prefix(),
                                 .weight = part.weight,
                                 .documents = part.documents,
                                 .num_samples_asked = part.num_samples_asked,
                                 .num_epochs = 0,  // a map is shuffled as a whole
                                 .num_samples = part.map.size(),
                                 .sizes_hash = hash_of_sentences(sentences, part.documents),
                                 .arrays_hash = hash_of_arrays({&part.map.rows()}),
                                 .tokens_hash = hash_of_tokens(*part.store, sequences)});
  }
  return fingerprint;
}

class SentenceDatasetBuilder {
 public:
  SentenceDatasetBuilder(const DataSetOptions& data, const SentenceSampleOptions& samples, const Split& split)
      : data_(data), samples_(samples), parts_(split, &TokenStore::num_documents), cache_(data.cache_path) {}

  // Null when none of the sources gives the set a document.
  std::unique_ptr<const SentenceDataset> build(const DataGroup& group, internal::SetKind kind, int64_t num_samples) {
    const std::vector<internal::SetPart> parts = parts_.make(group, kind, num_samples);
    if (parts.empty()) return nullptr;
    auto dataset = std::make_unique<SentenceDataset>();
    dataset->name_ = group.name;
    dataset->seed_ = data_.seed;
    dataset->options_ = samples_;
    dataset->maker_ = SentenceSampleMaker::create(samples_);
    std::vector<double> weights;
    std::vector<int64_t> lengths;
    for (const internal::SetPart& part : parts) {
      const SentenceMapRequest request{part.documents,
                                       samples_.max_length(),
                                       part.num_samples,
                                       samples_.short_probability,
                                       static_cast<uint32_t>(data_.seed),
                                       samples_.min_sentences(),
                                       part.title};
      dataset->parts_.push_back({part.store, cache_.load_or_build(sentences_of(*part.store), request), part.documents,
                                 part.num_samples, part.weight});
      dataset->source_names_.push_back(part.source_name);
      weights.push_back(part.weight);
      lengths.push_back(dataset->parts_.back().map.size());
    }
    dataset->blend_ = internal::blend_of(weights, lengths, group.name, num_samples);
    return dataset;
  }

 private:
  const DataSetOptions& data_;
  const SentenceSampleOptions& samples_;
  internal::SetParts parts_;
  const SentenceMapCache cache_;
};

namespace {

DataPlan sentence_plan(const DataSetOptions& data, const SentenceSampleOptions& samples) {
  Problems problems;
  DataPlan plan = plan_data(data, problems);
  samples.check(problems);
  if (problems.empty()) check_sentences(plan, samples, problems);
  problems.raise();
  if (const std::string caution = samples.caution(); !caution.empty()) warn_once(caution);
  ESPALIER_CHECK(data.sequence_length == samples.sequence_length && data.seed >= 0 &&
                 data.seed <= std::numeric_limits<uint32_t>::max());
  return plan;
}

}  // namespace

std::unique_ptr<const SentenceDataset> SentenceDataSets::open_train(const DataSetOptions& data,
                                                                    const SentenceSampleOptions& samples) {
  const DataPlan plan = sentence_plan(data, samples);
  return SentenceDatasetBuilder(data, samples, plan.split).build(plan.train, internal::kTrain, data.train_samples);
}

SentenceDataSets SentenceDataSets::open(const DataSetOptions& data, const SentenceSampleOptions& samples) {
  const DataPlan plan = sentence_plan(data, samples);
  SentenceDatasetBuilder builder(data, samples, plan.split);
  SentenceDataSets sets;
  sets.train = builder.build(plan.train, internal::kTrain, data.train_samples);
  sets.valid = internal::build_groups(
      plan.valid, [&](const DataGroup& group) { return builder.build(group, internal::kValid, data.valid_samples); });
  sets.test = internal::build_groups(
      plan.test, [&](const DataGroup& group) { return builder.build(group, internal::kTest, data.test_samples); });
  return sets;
}

void check_sentences(const DataPlan& plan, const SentenceSampleOptions& samples, Problems& problems) {
  std::set<std::string> prefixes;
  const auto collect = [&](const DataGroup& group) {
    for (const DataSource& source : group.sources)
      if (find_token_files(source.prefix)) prefixes.insert(source.prefix);
  };
  collect(plan.train);
  std::for_each(plan.valid.begin(), plan.valid.end(), collect);
  std::for_each(plan.test.begin(), plan.test.end(), collect);
  for (const std::string& prefix : prefixes) {
    try {
      check_boundaries(TokenStore(prefix), samples, problems);
    } catch (const UserError&) {
      continue;  // what is wrong with a file is reported, with its exit code, by whoever opens it to read samples
    }
  }
}

}  // namespace espalier::data
