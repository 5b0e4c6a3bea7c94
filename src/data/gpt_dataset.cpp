#include "data/gpt_dataset.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/format.h"
#include "data/best_fit_index.h"
#include "data/implicit_order.h"
#include "data/internal/set_parts.h"
#include "data/mixture_table.h"
#include "data/sample_index_cache.h"
#include "data/token_probe.h"

namespace espalier::data {

void GptDataset::read(int64_t number, Sample& sample) const {
  const auto length = static_cast<size_t>(sequence_length_) + 1;
  sample.arrays.resize(fields_.size());
  sample.arrays[kIds].resize(length);
  sample.source = this->sample(number, sample.arrays[kIds]);
  if (packing_ != Packing::kBestFit) return;
  std::vector<int64_t>& segments = sample.arrays[kSegments];
  segments.assign(length, 0);
  int64_t segment = 0;
  for (const SamplePiece& piece : pieces(number)) std::fill_n(segments.begin() + piece.at, piece.length, ++segment);
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
  part.order.spans(place.sample, spans);
  int64_t* next = ids.data();
  for (const DocumentSpan& span : spans) {
    part.store->read(span.document, span.offset, span.length, next);
    next += span.length;
  }
  std::fill(next, ids.data() + ids.size(), pad_id_);
  return place.set;
}

std::vector<SamplePiece> GptDataset::pieces(int64_t number) const {
  const BlendIndex::Place place = this->place(number);
  const Part& part = parts_[static_cast<size_t>(place.set)];
  std::vector<DocumentSpan> spans;
  part.order.spans(place.sample, spans);
  std::vector<SamplePiece> pieces;
  int64_t at = 0;
  for (const DocumentSpan& span : spans) {
    pieces.push_back({part.store.get(), span.document, span.offset, span.length, at});
    at += span.length;
  }
  return pieces;
}

std::vector<TracedFile> GptDataset::traced_files() const {
  std::vector<TracedFile> files;
  for (const Part& part : parts_)
    files.push_back(
        {part.store.get(), static_cast<int64_t>(files.size()), part.store->prefix(), /*sequences=*/part.documents});
  return files;
}

std::vector<FoundPiece> GptDataset::find(const TracedFile& file, const DocumentRange& sequences) const {
  const Part& part = parts_[static_cast<size_t>(file.source)];
  std::vector<FoundPiece> all;
  for (const Sighting& one : part.order.sightings(sequences)) {
    if (const std::optional<int64_t> number = mixture_.sample_at({file.source, one.sample}))
      all.push_back({*number, {part.store.get(), one.span.document, one.span.offset, one.span.length, one.at}});
  }
  return all;
}

int64_t GptDataset::samples_per_epoch() const {
  if (packing_ != Packing::kNone) return 0;
  int64_t tokens = 0;
  for (const Part& part : parts_) tokens += part.order.tokens_per_epoch();
  return tokens / sequence_length_;
}

std::string GptDataset::description() const {
  std::string text =
      concat(name_, ": ", format_count(size()), " samples of ", format_count(sequence_length_), " tokens");
  if (packing_ == Packing::kBestFit) text += ", documents whole where they fit";
  if (order_kind_ == OrderKind::kImplicit) text += ", in implicit order";
  if (mixture_.num_stages() > 1) return concat(text, "\n", mixture_table(mixture_rows(*this)));
  for (const Part& part : parts_)
    text += concat(parts_.size() == 1 ? ", " : "\n  ", format_count(part.order.num_epochs()),
                   part.order.num_epochs() == 1 ? " epoch" : " epochs", " of ", format_count(part.documents.size()),
                   " documents (", format_count(part.order.tokens_per_epoch()), " tokens) of ", part.store->prefix());
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

  // Null when none of the sources gives the set a document. `stages`: of the training set.
  std::unique_ptr<const GptDataset> build(const DataGroup& group, internal::SetKind kind, int64_t num_samples,
                                          const std::vector<DataPlan::Stage>& stages = {}) {
    std::vector<internal::SetPart> parts = parts_.make(group, kind, num_samples);
    if (parts.empty()) return nullptr;
    auto dataset = std::make_unique<GptDataset>();
    dataset->name_ = group.name;
    dataset->sequence_length_ = options_.sequence_length;
    dataset->seed_ = options_.seed;
    dataset->pad_id_ = options_.pad_id;
    dataset->packing_ = options_.packing;
    dataset->order_kind_ = options_.sample_order;
    dataset->fields_ = {{.name = "text", .shape = {dataset->sequence_length_ + 1}, .holds_ids = true}};
    if (options_.packing == Packing::kBestFit)
      dataset->fields_.push_back({.name = "segments", .shape = {dataset->sequence_length_ + 1}});
    if (!stages.empty()) {
      const std::vector<Mixture::Stage> all = parts_.add_stages(stages, parts);
      dataset->mixture_ = Mixture::of_stages(all, parts.size(), num_samples);
    }
    std::vector<int64_t> lengths;
    for (size_t at = 0; at < parts.size(); ++at) {
      const internal::SetPart& part = parts[at];
      const int64_t num_read =
          stages.empty() ? part.num_samples : dataset->mixture_.samples_before(dataset->mixture_.num_stages(), at);
      dataset->parts_.push_back({part.store, order_of(part, num_read), part.documents, part.num_samples, part.weight});
      dataset->source_names_.push_back(part.source_name);
      lengths.push_back(dataset->parts_.back().order.size());
    }
    if (stages.empty()) dataset->mixture_ = internal::mixture_of(parts, lengths, group.name, num_samples);
    return dataset;
  }

 private:
  // At least `num_read` samples. Megatron's arrays depend on the number asked for; what a later stage reads beyond them
  // comes after them, epoch by epoch, each with the next seed, so that it moves nothing.
  OrderChain order_of(const internal::SetPart& part, int64_t num_read) const {
    const auto seed = [&](int64_t more) { return static_cast<uint32_t>(options_.seed + more); };
    OrderChain order;
    const bool is_packed = options_.packing == Packing::kBestFit;
    order.append(is_packed ? best_fit_order(part, seed(0)) : text_order(part, part.num_samples, seed(0)));
    for (int64_t more = 1; order.size() < num_read; ++more)
      order.append(is_packed ? best_fit_order(part, seed(more)) : text_order(part, 1, seed(more)));
    return order;
  }
  std::shared_ptr<const SampleOrder> text_order(const internal::SetPart& part, int64_t num_samples,
                                                uint32_t seed) const {
    const SampleRequest request{part.documents, options_.sequence_length, num_samples, seed, part.title};
    if (options_.sample_order == OrderKind::kImplicit)
      return std::make_shared<ImplicitOrder>(part.store->index(), request);
    return std::make_shared<SampleIndex>(cache_.load_or_build(part.store->sizes(), request));
  }
  std::shared_ptr<const SampleOrder> best_fit_order(const internal::SetPart& part, uint32_t seed) const {
    return std::make_shared<BestFitIndex>(BestFitIndex::build(
        part.store->sizes(), {part.documents, options_.sequence_length, seed, part.title}, options_.cache_path));
  }

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
  return GptDatasetBuilder(options, plan.split)
      .build(plan.train, internal::kTrain, options.train_samples, plan.train_stages);
}

GptDataSets GptDataSets::open(const DataSetOptions& options) {
  const DataPlan plan = checked_plan(options);
  GptDatasetBuilder builder(options, plan.split);
  GptDataSets sets;
  sets.train = builder.build(plan.train, internal::kTrain, options.train_samples, plan.train_stages);
  sets.valid = internal::build_groups(plan.valid, [&](const DataGroup& group) {
    return builder.build(group, internal::kValid, options.valid_samples);
  });
  sets.test = internal::build_groups(
      plan.test, [&](const DataGroup& group) { return builder.build(group, internal::kTest, options.test_samples); });
  return sets;
}

}  // namespace espalier::data
