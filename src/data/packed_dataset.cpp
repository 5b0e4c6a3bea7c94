#include "data/packed_dataset.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "data/internal/set_parts.h"
#include "data/token_files.h"
#include "data/token_probe.h"

namespace espalier::data {
namespace {

std::string pair_counts_problem(const TokenStore& inputs, const TokenStore& targets) {
  if (inputs.num_sequences() == targets.num_sequences()) return "";
  return concat(
      "'", inputs.prefix(), "' has ", format_count(inputs.num_sequences()), " documents, '", targets.prefix(), "' has ",
      format_count(targets.num_sequences()),
      ": they are not pairs. A record with an empty text gives a document for one key only; leave such records "
      "out.");
}

uint64_t hash_of_sizes(const TokenStore& store, const DocumentRange& range) {
  return hash64(store.sizes().address(range.begin), static_cast<size_t>(range.size()) * sizeof(int32_t));
}

uint64_t hash_of_both(uint64_t inputs, uint64_t targets) {
  const uint64_t both[2] = {inputs, targets};
  return hash64(both, sizeof both);
}

}  // namespace

int32_t pad_id(const text::Tokenizer& tokenizer) {
  return tokenizer.named_ids().pad.value_or(tokenizer.eod().value_or(0));
}

void PackedDataset::read(int64_t number, Sample& sample) const {
  const BlendIndex::Place place = this->place(number);
  const Part& part = parts_[static_cast<size_t>(place.set)];
  const auto length = static_cast<size_t>(row_length_);
  sample.source = place.set;
  sample.arrays.resize(fields_.size());
  sample.arrays[kIds].assign(length, pad_id_);
  sample.arrays[kSegments].assign(length, 0);
  sample.arrays[kIsInput].assign(length, 0);
  int64_t at = 0, segment = 0;
  for (const int64_t pair : part.index.pairs(place.sample)) {
    const int64_t input = part.inputs->size(pair), target = part.targets->size(pair), end = at + input + target;
    ESPALIER_CHECK(end <= row_length_, end, " of ", row_length_);
    part.inputs->read(pair, 0, input, sample.arrays[kIds].data() + at);
    part.targets->read(pair, 0, target, sample.arrays[kIds].data() + at + input);
    std::fill(sample.arrays[kSegments].begin() + at, sample.arrays[kSegments].begin() + end, ++segment);
    std::fill_n(sample.arrays[kIsInput].begin() + at, input, 1);
    at = end;
  }
}

std::vector<TracedFile> PackedDataset::traced_files() const {
  std::vector<TracedFile> files;
  for (size_t source = 0; source < parts_.size(); ++source)
    for (const auto& store : {parts_[source].inputs, parts_[source].targets})
      files.push_back({store.get(), static_cast<int64_t>(source), parts_[source].prefix, parts_[source].pairs});
  return files;
}

std::vector<SamplePiece> PackedDataset::pieces_of(const BlendIndex::Place& place) const {
  const Part& part = parts_[static_cast<size_t>(place.set)];
  std::vector<SamplePiece> pieces;
  int64_t at = 0;
  for (const int64_t pair : part.index.pairs(place.sample))
    for (const auto& store : {part.inputs, part.targets}) {
      const int64_t size = store->size(pair);
      pieces.push_back({store.get(), pair, 0, size, at});
      at += size;
    }
  return pieces;
}

std::vector<SamplePiece> PackedDataset::pieces(int64_t number) const { return pieces_of(place(number)); }

std::vector<FoundPiece> PackedDataset::find(const TracedFile& file, const DocumentRange& sequences) const {
  const PackedIndex& index = parts_[static_cast<size_t>(file.source)].index;
  std::vector<FoundPiece> all;
  for (int64_t row = 0; row < index.size(); ++row) {
    const std::span<const int64_t> pairs = index.pairs(row);
    if (std::none_of(pairs.begin(), pairs.end(),
                     [&](int64_t pair) { return sequences.begin <= pair && pair < sequences.end; }))
      continue;
    const std::optional<int64_t> number = blend_ ? blend_->sample_at({file.source, row}) : std::optional(row);
    if (!number) continue;
    for (const SamplePiece& piece : pieces_of({file.source, row}))
      if (piece.store == file.store && sequences.begin <= piece.sequence && piece.sequence < sequences.end)
        all.push_back({*number, piece});
  }
  return all;
}

std::string PackedDataset::description() const {
  std::string text = concat(name_, ": ", format_count(size()), " rows of packed pairs, ", format_count(row_length_ - 1),
                            " tokens each");
  for (const Part& part : parts_) {
    const int64_t left_out = part.index.num_too_long();
    text += concat(parts_.size() == 1 ? ", " : "\n  ", format_count(part.index.num_epochs()),
                   part.index.num_epochs() == 1 ? " epoch" : " epochs", " of ", format_count(part.pairs.size()),
                   " pairs of ", part.prefix,
                   left_out == 0 ? "" : concat(", less ", format_count(left_out), " that are too long"));
  }
  return text;
}

std::vector<std::string> PackedDataset::prefixes() const {
  std::vector<std::string> prefixes;
  for (const Part& part : parts_)
    for (const auto& store : {part.inputs, part.targets}) prefixes.push_back(store->prefix());
  return prefixes;
}

void PackedDataset::probe_ids(int64_t vocab_size) const {
  for (const Part& part : parts_)
    for (const auto& store : {part.inputs, part.targets})
      if (const auto problem = data::probe_ids(*store, part.pairs, vocab_size))
        throw UserError(*problem, ExitCode::kBadData);
}

// More rows are more epochs, and change none of the rows before them: the order of the first epoch, with the sizes,
// says it all.
OrderFingerprint PackedDataset::fingerprint(const std::string& reading) const {
  OrderFingerprint fingerprint{row_length_ - 1, seed_, reading, {}, {}, {}};
  for (const Part& part : parts_) {
    const size_t epoch = static_cast<size_t>(part.pairs.size()) * sizeof(int64_t);
    fingerprint.parts.push_back(
        {.prefix = part.prefix,
         .weight = part.weight,
         .documents = part.pairs,
         .num_samples_asked = part.num_samples_asked,
         .num_epochs = part.index.num_epochs(),
         .num_samples = part.index.size(),
         .sizes_hash = hash_of_both(hash_of_sizes(*part.inputs, part.pairs), hash_of_sizes(*part.targets, part.pairs)),
         .arrays_hash = hash64(part.index.order().data(), epoch),
         .tokens_hash =
             hash_of_both(hash_of_tokens(*part.inputs, part.pairs), hash_of_tokens(*part.targets, part.pairs))});
  }
  return fingerprint;
}

// Opens each token file once, however many sets read it.
class PackedDatasetBuilder {
 public:
  PackedDatasetBuilder(const DataSetOptions& options, const Split& split, int64_t pad_id)
      : options_(options), pad_id_(pad_id), parts_(split, &TokenStore::num_sequences, kTargetsEnding) {}

  // Null when none of the sources gives the set a pair.
  std::unique_ptr<const PackedDataset> build(const DataGroup& group, internal::SetKind kind, int64_t num_samples) {
    const std::vector<internal::SetPart> parts = parts_.make(group, kind, num_samples);
    if (parts.empty()) return nullptr;
    auto dataset = std::make_unique<PackedDataset>();
    dataset->name_ = group.name;
    dataset->seed_ = options_.seed;
    dataset->row_length_ = options_.sequence_length + 1;
    dataset->pad_id_ = pad_id_;
    for (const char* name : {"decoder_token_ids", "decoder_segment_ids", "decoder_is_inputs"})
      dataset->fields_.push_back(
          {.name = name, .shape = {dataset->row_length_}, .holds_ids = dataset->fields_.empty()});
    std::vector<double> weights;
    std::vector<int64_t> lengths;
    for (const internal::SetPart& part : parts) {
      dataset->parts_.push_back(build_part(part));
      dataset->source_names_.push_back(part.source_name);
      weights.push_back(part.weight);
      lengths.push_back(dataset->parts_.back().index.size());
    }
    dataset->blend_ = internal::blend_of(weights, lengths, group.name, num_samples);
    return dataset;
  }

 private:
  PackedDataset::Part build_part(const internal::SetPart& part) {
    std::shared_ptr<const TokenStore>& inputs = inputs_[part.prefix];
    if (!inputs) inputs = std::make_shared<const TokenStore>(part.prefix + kInputsEnding);
    if (const std::string problem = pair_counts_problem(*inputs, *part.store); !problem.empty())
      throw UserError(problem, ExitCode::kBadData);
    const PackedRequest request{part.documents, options_.sequence_length + 1, part.num_samples,
                                static_cast<uint32_t>(options_.seed), part.title};
    return {
        part.prefix,    inputs,           part.store, PackedIndex::build(inputs->sizes(), part.store->sizes(), request),
        part.documents, part.num_samples, part.weight};
  }

  const DataSetOptions& options_;
  const int64_t pad_id_;
  internal::SetParts parts_;  // of the targets
  std::map<std::string, std::shared_ptr<const TokenStore>> inputs_;
};

namespace {

DataPlan packed_plan(const DataSetOptions& options) {
  Problems problems;
  DataPlan plan = plan_data(options, problems);
  problems.raise();
  ESPALIER_CHECK(options.sequence_length > 0 && options.seed >= 0 &&
                 options.seed <= std::numeric_limits<uint32_t>::max() && options.endings.size() == 2);
  return plan;
}

}  // namespace

std::unique_ptr<const PackedDataset> PackedDataSets::open_train(const DataSetOptions& options, int64_t pad_id) {
  const DataPlan plan = packed_plan(options);
  return PackedDatasetBuilder(options, plan.split, pad_id).build(plan.train, internal::kTrain, options.train_samples);
}

PackedDataSets PackedDataSets::open(const DataSetOptions& options, int64_t pad_id) {
  const DataPlan plan = packed_plan(options);
  PackedDatasetBuilder builder(options, plan.split, pad_id);
  PackedDataSets sets;
  sets.train = builder.build(plan.train, internal::kTrain, options.train_samples);
  sets.valid = internal::build_groups(plan.valid, [&](const DataGroup& group) {
    return builder.build(group, internal::kValid, options.valid_samples);
  });
  sets.test = internal::build_groups(
      plan.test, [&](const DataGroup& group) { return builder.build(group, internal::kTest, options.test_samples); });
  return sets;
}

void check_pairs(const DataPlan& plan, int64_t sequence_length, Problems& problems) {
  std::set<std::string> prefixes;
  const auto collect = [&](const DataGroup& group) {
    for (const DataSource& source : group.sources)
      if (find_token_files(source.prefix + kInputsEnding) && find_token_files(source.prefix + kTargetsEnding))
        prefixes.insert(source.prefix);
  };
  collect(plan.train);
  std::for_each(plan.valid.begin(), plan.valid.end(), collect);
  std::for_each(plan.test.begin(), plan.test.end(), collect);
  for (const std::string& prefix : prefixes) {
    try {
      const TokenStore inputs(prefix + kInputsEnding), targets(prefix + kTargetsEnding);
      std::string problem = pair_counts_problem(inputs, targets);
      if (problem.empty())
        problem = PackedIndex::problem_of(inputs.sizes(), targets.sizes(),
                                          {{0, inputs.num_sequences()}, sequence_length + 1, 0, 0, prefix});
      if (!problem.empty()) problems.add(problem);
    } catch (const UserError&) {
      continue;  // what is wrong with a file is reported, with its exit code, by whoever opens it to read samples
    }
  }
}

}  // namespace espalier::data
