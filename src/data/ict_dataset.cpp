#include "data/ict_dataset.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "data/internal/set_parts.h"
#include "data/python_random.h"
#include "data/sentence_map_cache.h"
#include "data/store_metadata.h"
#include "data/token_files.h"
#include "data/token_probe.h"

namespace espalier::data {
namespace {

enum IctArray : size_t { kQueryTokens, kQueryPadMask, kContextTokens, kContextPadMask, kBlockData };

Sentences ict_sentences(const TokenStore& store) { return {store.sizes(), store.document_marks()}; }

void append_ids(const TokenStore& store, int64_t sequence, int64_t vocab_size, std::vector<int64_t>& ids) {
  const auto begin = static_cast<std::ptrdiff_t>(ids.size());
  ids.resize(ids.size() + static_cast<size_t>(store.size(sequence)));
  store.read(sequence, 0, store.size(sequence), ids.data() + begin);
  const auto bad = std::find_if(ids.begin() + begin, ids.end(), [&](int64_t id) { return id < 0 || id >= vocab_size; });
  if (bad == ids.end()) return;
  throw UserError(concat("'", store.files().tokens, "', sequence ", sequence, ", token ", bad - ids.begin() - begin,
                         ": expected an id below the ", format_count(vocab_size), " of the vocabulary, found ", *bad,
                         ". The data were made with another tokenizer, or are damaged."),
                  ExitCode::kBadData);
}

// Ends the tokens and fills them and their mask up.
void finish_row(const IctSampleOptions& options, std::vector<int64_t>& ids, std::vector<int64_t>& mask) {
  const auto length = static_cast<size_t>(options.sequence_length);
  ids.push_back(options.vocabulary.sep);
  ESPALIER_CHECK(ids.size() <= length, ids.size());
  mask.assign(ids.size(), 1);
  mask.resize(length, 0);
  ids.resize(length, options.vocabulary.pad);
}

std::vector<std::string> prefixes_of_plan(const DataPlan& plan, bool& has_blend) {
  std::set<std::string> prefixes;
  const auto collect = [&](const DataGroup& group) {
    has_blend = has_blend || group.sources.size() > 1;
    for (const DataSource& source : group.sources) prefixes.insert(source.prefix);
  };
  collect(plan.train);
  std::for_each(plan.valid.begin(), plan.valid.end(), collect);
  std::for_each(plan.test.begin(), plan.test.end(), collect);
  return {prefixes.begin(), prefixes.end()};
}

// Records that gave no document, according to the metadata; 0 where they do not say.
std::string num_left_out(const std::string& prefix) {
  if (const auto files = find_token_files(prefix))
    if (const auto metadata = read_metadata(*files))
      for (const auto& [name, value] : metadata->options)
        if (name == "empty") return value;
  return "0";
}

// Equal numbers do not prove that titles and documents are of the same records.
void warn_of_gaps(const std::string& texts, const std::string& titles) {
  const std::string without_text = num_left_out(texts), without_title = num_left_out(titles);
  if (without_text == "0" || without_title == "0") return;
  warn_once(concat("--titles-data-path ", titles, ": when the token files were made, ", without_text,
                   " records gave no text and ", without_title,
                   " no title. If these are not the same records, documents have the titles of others: leave out ",
                   "of the input what has no text or no title."));
}

void check_title_count(const std::string& texts, const std::string& titles, Problems& problems) {
  try {
    const int64_t documents = TokenStore(texts).num_documents(), found = TokenStore(titles).num_sequences();
    if (documents != found)
      problems.add("--titles-data-path ", titles, ": expected one title for each of the ", format_count(documents),
                   " documents of '", texts, "', found ", format_count(found),
                   " sequences. Make them with 'espalier preprocess --json-keys title' from the same input, without ",
                   "--split-sentences.");
    else
      warn_of_gaps(texts, titles);
  } catch (const UserError&) {
    // what is wrong with a file is reported, with its exit code, by whoever opens it to read samples
  }
}

}  // namespace

std::string IctSampleOptions::description() const {
  return concat("ICT of ", sequence_length, " tokens, blocks of ", min_sentences(),
                " sentences and more, query kept in ", format_shortest(100 * query_in_block_prob), " %");
}

void IctDataset::draw_queries() {
  PythonRandom random(static_cast<uint64_t>(seed_));
  draws_.reserve(static_cast<size_t>(size()));
  for (int64_t number = 0; number < size(); ++number) {
    const BlockMap::Row row = map_[number];
    const uint64_t sentence = random.below(static_cast<uint64_t>(row.end - row.first));
    const bool stays = random.uniform() < options_.query_in_block_prob;
    draws_.push_back({static_cast<uint32_t>(sentence) & 0x7fffffffu, stays ? 1u : 0u});
  }
}

void IctDataset::read(int64_t number, Sample& sample) const {
  ESPALIER_CHECK(number >= 0 && number < size(), "sample ", number, " of ", size());
  const BlockMap::Row row = map_[number];
  const Draw draw = draws_[static_cast<size_t>(number)];
  const SentenceVocabulary& vocabulary = options_.vocabulary;
  const auto length = static_cast<size_t>(options_.sequence_length);
  sample.source = 0;
  sample.arrays.resize(fields_.size());
  std::vector<int64_t>&query = sample.arrays[kQueryTokens], &context = sample.arrays[kContextTokens];

  query.assign(1, vocabulary.cls);
  append_ids(*texts_, row.first + draw.sentence, vocabulary.size, query);
  query.resize(std::min(query.size(), length - 1));
  finish_row(options_, query, sample.arrays[kQueryPadMask]);

  context.assign(1, vocabulary.cls);
  append_ids(*titles_, row.document, vocabulary.size, context);
  context.push_back(vocabulary.sep);
  for (int64_t sentence = row.first; sentence < row.end; ++sentence)
    if (draw.stays != 0 || sentence != row.first + draw.sentence)
      append_ids(*texts_, sentence, vocabulary.size, context);
  context.resize(std::min(context.size(), length - 1));
  finish_row(options_, context, sample.arrays[kContextPadMask]);

  sample.arrays[kBlockData] = {row.first, row.end, row.document, row.block};
}

std::string IctDataset::description() const {
  const DocumentSurvey& survey = map_.survey();
  return concat(name_, ": ", format_count(size()), " samples, ", options_.description(), "; ",
                format_count(survey.num_used), " of ", format_count(survey.num_documents), " documents (",
                format_count(survey.num_sentences), " sentences) of ", texts_->prefix(), ", titles of ",
                titles_->prefix());
}

void IctDataset::probe_ids(int64_t vocab_size) const {
  for (const auto& store : {texts_, titles_})
    if (const auto problem = data::probe_ids(*store, {0, store->num_sequences()}, vocab_size))
      throw UserError(*problem, ExitCode::kBadData);
}

OrderFingerprint IctDataset::fingerprint(const std::string& reading) const {
  OrderFingerprint fingerprint{options_.sequence_length, seed_, concat(reading, "; ", options_.description()), {}};
  const Sentences sentences = ict_sentences(*texts_);
  const DocumentRange sequences{sentences.documents[documents_.begin], sentences.documents[documents_.end]};
  // Titles are one sequence for each document.
  const DocumentSizes titles(titles_->sizes().address(documents_.begin), documents_.size());
  const std::vector<int64_t> one_document = {0, documents_.size()};
  fingerprint.parts = {{.prefix = texts_->prefix(),
                        .weight = 1,
                        .documents = documents_,
                        .num_samples_asked = num_samples_asked_,
                        .num_epochs = 0,  // a map is shuffled as a whole
                        .num_samples = size(),
                        .sizes_hash = hash_of_sentences(sentences, documents_),
                        .arrays_hash = hash_of_arrays({&map_.rows()}),
                        .tokens_hash = hash_of_tokens(*texts_, sequences)},
                       {.prefix = titles_->prefix(),
                        .weight = 1,
                        .documents = documents_,
                        .num_samples_asked = num_samples_asked_,
                        .num_epochs = 0,
                        .num_samples = size(),
                        .sizes_hash = hash_of_sentences({titles, DocumentMarks(one_document)}, {0, 1}),
                        .arrays_hash = 0,
                        .tokens_hash = hash_of_tokens(*titles_, documents_)}};
  return fingerprint;
}

class IctDatasetBuilder {
 public:
  IctDatasetBuilder(const DataSetOptions& data, const IctSampleOptions& options, const Split& split)
      : data_(data),
        options_(options),
        parts_(split, &TokenStore::num_documents),
        titles_(std::make_shared<const TokenStore>(options.titles_data_path)) {}

  // Null when the source gives the set no document.
  std::unique_ptr<const IctDataset> build(const DataGroup& group, internal::SetKind kind, int64_t num_samples) {
    const std::vector<internal::SetPart> parts = parts_.make(group, kind, num_samples);
    if (parts.empty()) return nullptr;
    const internal::SetPart& part = parts.front();
    auto dataset = std::make_unique<IctDataset>();
    dataset->name_ = group.name;
    dataset->source_names_ = {part.source_name};
    dataset->seed_ = data_.seed;
    dataset->num_samples_asked_ = num_samples;
    dataset->documents_ = part.documents;
    dataset->options_ = options_;
    const std::vector<int64_t> row = {options_.sequence_length};
    dataset->fields_ = {{"query_tokens", row, true},
                        {"query_pad_mask", row, false},
                        {"context_tokens", row, true},
                        {"context_pad_mask", row, false},
                        {"block_data", {4}, false}};
    dataset->texts_ = part.store;
    dataset->titles_ = titles_;
    dataset->map_ = BlockMap::build(ict_sentences(*part.store), titles_->sizes(),
                                    {.documents = part.documents,
                                     .max_length = options_.max_length(),
                                     .num_samples = num_samples,
                                     .seed = static_cast<uint32_t>(data_.seed),
                                     .min_sentences = options_.min_sentences(),
                                     .name = part.title});
    dataset->draw_queries();
    return dataset;
  }

 private:
  const DataSetOptions& data_;
  const IctSampleOptions& options_;
  internal::SetParts parts_;
  std::shared_ptr<const TokenStore> titles_;
};

IctDataSets IctDataSets::open(const DataSetOptions& data, const IctSampleOptions& options) {
  Problems problems;
  const DataPlan plan = plan_data(data, problems);
  check_ict(plan, data, options, problems);
  problems.raise();
  IctDatasetBuilder builder(data, options, plan.split);
  IctDataSets sets;
  sets.train = builder.build(plan.train, internal::kTrain, data.train_samples);
  sets.valid = internal::build_groups(
      plan.valid, [&](const DataGroup& group) { return builder.build(group, internal::kValid, data.valid_samples); });
  sets.test = internal::build_groups(
      plan.test, [&](const DataGroup& group) { return builder.build(group, internal::kTest, data.test_samples); });
  return sets;
}

void check_ict(const DataPlan& plan, const DataSetOptions& data, const IctSampleOptions& options, Problems& problems) {
  if (options.sequence_length < 4)
    problems.add("--seq-length ", options.sequence_length,
                 ": ICT needs 4 tokens or more: CLS, SEP and SEP, and one of the text");
  if (!data.cache_path.empty())
    problems.add("--data-cache-path: the maps of ICT are rebuilt each time, which takes a pass over the sizes of the ",
                 "sentences; leave it out");
  bool has_blend = false;
  const std::vector<std::string> prefixes = prefixes_of_plan(plan, has_blend);
  const bool has_one_prefix = !has_blend && prefixes.size() == 1;
  if (has_blend || prefixes.size() > 1)
    problems.add("ICT reads one data set, whose titles --titles-data-path has, but was given several or parts of one: ",
                 join(prefixes, ", "), ". Join them with 'espalier data merge', texts and titles in the same order.");
  const std::string& titles = options.titles_data_path;
  if (titles.empty())
    problems.add("--titles-data-path is missing: token files with the title of each document, one sequence each");
  else if (!find_token_files(titles))
    problems.add("--titles-data-path: ", describe_missing(titles));
  else if (has_one_prefix && find_token_files(prefixes.front()))
    check_title_count(prefixes.front(), titles, problems);
}

}  // namespace espalier::data
