#include "data/gpt_dataset.h"

#include <limits>

#include "base/error.h"
#include "base/format.h"
#include "data/internal/set_parts.h"
#include "data/sample_index_cache.h"
#include "data/token_probe.h"

namespace espalier::data {
void GptDataset::read(int64_t number, Sample& sample) const {
  sample.arrays.resize(1);
  sample.arrays[0].resize(static_cast<size_t>(sequence_length_) + 1);
  sample.source = this->sample(number, sample.arrays[0]);
}

std::vector<std::string> GptDataset::prefixes() const {
  std::vector<std::string> prefixes;
  for (const Part& part : parts_) prefixes.push_back(part.store->prefix());
  return prefixes;
}

OrderFingerprint GptDataset::fingerprint(const std::string& reading) const { return order_fingerprint(*this, reading); }

int64_t GptDataset::sample(int64_t number, std::span<int64_t> ids) const {
  ESPALIER_CHECK(static_cast<int64_t>(ids.size()) == sequence_length_ + 1, ids.size());
  const BlendIndex::Place place = this->place(number);
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

std::vector<SamplePiece> GptDataset::pieces(int64_t number) const {
  const BlendIndex::Place place = this->place(number);
  const Part& part = parts_[static_cast<size_t>(place.set)];
  std::vector<DocumentSpan> spans;
  part.index.spans(place.sample, spans);
  std::vector<SamplePiece> pieces;
  int64_t at = 0;
  for (const DocumentSpan& span : spans) {
    pieces.push_back({part.store.get(), span.document, span.offset, span.length, at});
    at += span.length;
  }
  return pieces;
}

std::vector<GptDataset::Found> GptDataset::find(int64_t source, const DocumentRange& sequences) const {
  const Part& part = parts_[static_cast<size_t>(source)];
  std::vector<Found> all;
  for (const Sighting& one : part.index.sightings(sequences)) {
    const std::optional<int64_t> number =
        blend_ ? blend_->sample_at({source, one.sample}) : std::optional<int64_t>(one.sample);
    if (number)
      all.push_back({*number, {part.store.get(), one.span.document, one.span.offset, one.span.length, one.at}});
  }
  return all;
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
      : options_(options), parts_(split, &TokenStore::num_sequences), cache_(options.cache_path) {}

  // Null when none of the sources gives the set a document.
  std::unique_ptr<const GptDataset> build(const DataGroup& group, internal::SetKind kind, int64_t num_samples) {
    const std::vector<internal::SetPart> parts = parts_.make(group, kind, num_samples);
    if (parts.empty()) return nullptr;
    auto dataset = std::make_unique<GptDataset>();
    dataset->name_ = group.name;
    dataset->sequence_length_ = options_.sequence_length;
    dataset->fields_ = {{.name = "text", .shape = {dataset->sequence_length_ + 1}, .holds_ids = true}};
    dataset->seed_ = options_.seed;
    std::vector<double> weights;
    std::vector<int64_t> lengths;
    for (const internal::SetPart& part : parts) {
      const SampleRequest request{part.documents, options_.sequence_length, part.num_samples,
                                  static_cast<uint32_t>(options_.seed), part.title};
      dataset->parts_.push_back({part.store, cache_.load_or_build(part.store->sizes(), request), part.documents,
                                 part.num_samples, part.weight});
      dataset->source_names_.push_back(part.source_name);
      weights.push_back(part.weight);
      lengths.push_back(dataset->parts_.back().index.size());
    }
    dataset->blend_ = internal::blend_of(weights, lengths, group.name, num_samples);
    return dataset;
  }

 private:
  const DataSetOptions& options_;
  internal::SetParts parts_;
  const SampleIndexCache cache_;
};

namespace {

DataPlan checked_plan(const DataSetOptions& options) {
  Problems problems;
  DataPlan plan = plan_data(options, problems);
  problems.raise();
  ESPALIER_CHECK(options.sequence_length > 0 && options.seed >= 0 &&
                 options.seed <= std::numeric_limits<uint32_t>::max());
  return plan;
}

}  // namespace

std::unique_ptr<const GptDataset> GptDataSets::open_train(const DataSetOptions& options) {
  const DataPlan plan = checked_plan(options);
  return GptDatasetBuilder(options, plan.split).build(plan.train, internal::kTrain, options.train_samples);
}

GptDataSets GptDataSets::open(const DataSetOptions& options) {
  const DataPlan plan = checked_plan(options);
  GptDatasetBuilder builder(options, plan.split);
  GptDataSets sets;
  sets.train = builder.build(plan.train, internal::kTrain, options.train_samples);
  sets.valid = internal::build_groups(plan.valid, [&](const DataGroup& group) {
    return builder.build(group, internal::kValid, options.valid_samples);
  });
  sets.test = internal::build_groups(
      plan.test, [&](const DataGroup& group) { return builder.build(group, internal::kTest, options.test_samples); });
  return sets;
}

}  // namespace espalier::data
