#include "data/gpt_dataset.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "data/sample_index_cache.h"
#include "data/token_probe.h"

namespace espalier::data {
namespace {

enum SetKind : size_t { kTrain, kValid, kTest };

bool all_different(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return std::adjacent_find(names.begin(), names.end()) == names.end();
}

std::string range_text(const DataSource& source) {
  return source.range ? concat(" ", format_shortest(source.range->begin), ":", format_shortest(source.range->end)) : "";
}

// Names for people and for tags of curves: short where that tells the sources apart.
std::vector<std::string> names_of(const std::vector<DataSource>& sources) {
  std::vector<std::string> names;
  for (const DataSource& source : sources) names.push_back(std::filesystem::path(source.prefix).filename().string());
  if (all_different(names)) return names;
  for (size_t at = 0; at < sources.size(); ++at) names[at] = sources[at].prefix;
  if (all_different(names)) return names;
  for (size_t at = 0; at < sources.size(); ++at) names[at] = sources[at].prefix + range_text(sources[at]);
  if (all_different(names)) return names;
  for (size_t at = 0; at < sources.size(); ++at) names[at] += concat(" #", at + 1);
  return names;
}

}  // namespace

int64_t GptDataset::sample(int64_t number, std::span<int64_t> ids) const {
  ESPALIER_CHECK(static_cast<int64_t>(ids.size()) == sequence_length_ + 1, ids.size());
  const BlendIndex::Place place = blend_ ? blend_->place(number) : BlendIndex::Place{0, number};
  const Part& part = parts_[static_cast<size_t>(place.set)];
  std::vector<DocumentSpan> spans;
  part.index.spans(place.sample, spans);
  int64_t* next = ids.data();
  for (const DocumentSpan& span : spans) {
    part.store->read(span.document, span.offset, span.length, next);
    next += span.length;
  }
  return place.set;
}

std::string GptDataset::description() const {
  std::string text =
      concat(name_, ": ", format_count(size()), " samples of ", format_count(sequence_length_), " tokens");
  for (size_t at = 0; at < parts_.size(); ++at) {
    const EpochPlan& plan = parts_[at].index.plan();
    text += concat(parts_.size() == 1 ? ", " : "\n  ", format_count(plan.num_epochs),
                   plan.num_epochs == 1 ? " epoch" : " epochs", " of ", format_count(parts_[at].documents.size()),
                   " documents (", format_count(plan.tokens_per_epoch), " tokens) of ", parts_[at].store->prefix());
  }
  return text;
}

void GptDataset::probe_ids(int64_t vocab_size) const {
  for (const Part& part : parts_)
    if (const auto problem = data::probe_ids(*part.store, part.documents, vocab_size))
      throw UserError(*problem, ExitCode::kBadData);
}

// Opens each token file once, however many sets read it.
class GptDatasetBuilder {
 public:
  GptDatasetBuilder(const DataSetOptions& options, const Split& split)
      : options_(options), split_(split), cache_(options.cache_path) {}

  // Null when none of the sources gives the set a document.
  std::unique_ptr<const GptDataset> build(const DataGroup& group, SetKind kind, int64_t num_samples) {
    std::vector<DataSource> sources = with_documents(group, kind, num_samples);
    if (sources.empty()) return nullptr;
    auto dataset = std::make_unique<GptDataset>();
    dataset->name_ = group.name;
    dataset->sequence_length_ = options_.sequence_length;
    dataset->seed_ = options_.seed;
    std::vector<double> weights;
    for (const DataSource& source : sources) weights.push_back(source.weight);
    weights = normalized_weights(weights);
    const std::vector<int64_t> counts =
        sources.size() == 1 ? std::vector<int64_t>{num_samples} : samples_per_set(weights, num_samples);
    for (size_t at = 0; at < sources.size(); ++at) {
      add_part(*dataset, sources[at], kind, counts[at]);
      dataset->parts_.back().weight = weights[at];
    }
    dataset->source_names_ = names_of(sources);
    if (sources.size() > 1) add_blend(*dataset, weights, num_samples);
    return dataset;
  }

 private:
  const std::shared_ptr<const TokenStore>& store(const std::string& prefix) {
    std::shared_ptr<const TokenStore>& entry = stores_[prefix];
    if (!entry) entry = std::make_shared<const TokenStore>(prefix);
    return entry;
  }

  DocumentRange documents_of(const DataSource& source, SetKind kind) {
    const int64_t count = store(source.prefix)->num_sequences();
    return source.range ? documents_in_range(*source.range, count) : split_documents(split_, count)[kind];
  }

  // Upstream stops with an assertion when one of several sources has no documents for a set. Here such a source is
  // left out of the blend, in words, and the weights of the others share its part; training must have all.
  std::vector<DataSource> with_documents(const DataGroup& group, SetKind kind, int64_t num_samples) {
    std::vector<DataSource> kept;
    for (const DataSource& source : group.sources) {
      const DocumentRange documents = documents_of(source, kind);
      if (documents.size() > 0) {
        kept.push_back(source);
        continue;
      }
      const std::string what =
          concat(group.name, ": the split gives it documents ", documents.begin, " to ", documents.end, " of the ",
                 store(source.prefix)->num_sequences(), " of '", source.prefix, "', that is none");
      if (kind == kTrain)
        throw UserError(concat(what, ". Give train a larger share or leave the data set out."), ExitCode::kBadData);
      if (num_samples > 0)
        log_warning(what, group.sources.size() > 1 ? "; it is left out of the blend" : "; the set is left out");
    }
    return kept;
  }

  void add_part(GptDataset& dataset, const DataSource& source, SetKind kind, int64_t num_samples) {
    const DocumentRange documents = documents_of(source, kind);
    const std::shared_ptr<const TokenStore>& tokens = store(source.prefix);
    const SampleRequest request{
        documents, options_.sequence_length, num_samples, static_cast<uint32_t>(options_.seed),
        concat(dataset.name_, " of ", std::filesystem::path(source.prefix).filename().string())};
    dataset.parts_.push_back({tokens, cache_.load_or_build(tokens->sizes(), request), documents, num_samples});
  }

  static void add_blend(GptDataset& dataset, const std::vector<double>& weights, int64_t num_samples) {
    std::vector<int64_t> lengths;
    for (const GptDataset::Part& part : dataset.parts_) lengths.push_back(part.index.size());
    dataset.blend_ = BlendIndex::build(weights, lengths);
    ESPALIER_CHECK(dataset.size() >= num_samples, "the blend of ", dataset.name_, " ends after ", dataset.size(),
                   " of ", num_samples, " samples");
  }

  const DataSetOptions& options_;
  const Split split_;
  const SampleIndexCache cache_;
  std::map<std::string, std::shared_ptr<const TokenStore>> stores_;
};

GptDataSets GptDataSets::open(const DataSetOptions& options) {
  Problems problems;
  const DataPlan plan = plan_data(options, problems);
  problems.raise();
  ESPALIER_CHECK(options.sequence_length > 0 && options.seed >= 0 &&
                 options.seed <= std::numeric_limits<uint32_t>::max());
  GptDatasetBuilder builder(options, plan.split);
  GptDataSets sets;
  sets.train = builder.build(plan.train, kTrain, options.train_samples);
  const auto build_groups = [&](const std::vector<DataGroup>& groups, SetKind kind, int64_t num_samples) {
    std::vector<std::unique_ptr<const GptDataset>> built;
    for (const DataGroup& group : groups)
      if (auto dataset = builder.build(group, kind, num_samples)) built.push_back(std::move(dataset));
    return built;
  };
  sets.valid = build_groups(plan.valid, kValid, options.valid_samples);
  sets.test = build_groups(plan.test, kTest, options.test_samples);
  return sets;
}

}  // namespace espalier::data
