#include "apps/data/run_samples.h"

#include <algorithm>
#include <map>
#include <span>

#include "base/format.h"
#include "base/log.h"
#include "data/gpt_dataset.h"
#include "data/order_fingerprint.h"
#include "data/sample_hash.h"
#include "families/traced_data.h"

namespace espalier {
namespace {

constexpr size_t kMostRanksNamed = 8;

data::Sampler sampler_of(const config::DataConfig& config, int64_t num_samples) {
  if (config.dataloader_type != config::DataloaderType::kCyclic) return data::Sampler::sequential(num_samples);
  if (config.cyclic_layout.empty()) return data::Sampler::cyclic(num_samples, {});
  return data::Sampler::cyclic(
      num_samples, {.micro_batch_size = config.cyclic_layout[0], .data_parallel_size = config.cyclic_layout[1]});
}

std::unique_ptr<const data::SampleSource> open_train(const families::RecordedRun& run) {
  if (const std::string why = families::untraced(run.config); !why.empty())
    throw UserError(concat("'", run.folder.string(), "' trains ", why, "."), ExitCode::kUsage);
  return families::open_traced(run.config, [&] { return tokenizer_of_run(run); });
}

}  // namespace

RunSamples::RunSamples(const std::string& folder, std::optional<int64_t> step, const std::vector<std::string>& more)
    : folder_(folder),
      more_(more),
      run_(families::read_recorded_run(folder, step, more)),
      steps_(families::read_recorded_steps(run_)),
      train_(open_train(run_)),
      sampler_(sampler_of(run_.config.data, train_->size())) {}

const families::RecordedRun& RunSamples::run_of_step(int64_t step) {
  const auto holds = [&](const families::RecordedRun& run) { return run.first_step <= step && step <= run.last_step; };
  if (holds(run_)) return run_;
  const auto known = std::find_if(others_.begin(), others_.end(), holds);
  if (known != others_.end()) return *known;
  others_.push_back(families::read_recorded_run(folder_, step, more_));
  return others_.back();
}

plan::SampleRange RunSamples::samples_of(int64_t step) const {
  const int64_t last = steps_.samples.num_steps();
  if (step > last)
    throw UserError(concat("--step ", step, ": the run in '", run_.folder.string(), "' has ", format_count(last),
                           " steps, numbered from 1"),
                    ExitCode::kUsage);
  return steps_.samples.of(step);
}

SamplePlace RunSamples::place(int64_t sample) {
  SamplePlace place{.step = steps_.samples.step_of(sample).value(), .sample = sample, .replica = {}, .ranks = {}};
  const families::RecordedRun& run = run_of_step(place.step);
  const int64_t in_step = sample - steps_.samples.of(place.step).first;
  const int64_t size = run.config.training.micro_batch_size;
  place.row = in_step % size;
  place.micro_batch = in_step / size;
  if (!run.layout) return place;
  // Replicas take turns, or, where sums are canonical, have blocks (train::Loader).
  const config::ParallelConfig& parallel = run.config.parallel;
  const bool takes_turns = !parallel.canonical_reduction || parallel.zero_stage >= 2;
  const int64_t number = in_step / size, replicas = run.layout->data;
  const int64_t of_replica = std::max<int64_t>(1, steps_.samples.of(place.step).count / (size * replicas));
  place.micro_batch = takes_turns ? number / replicas : number % of_replica;
  place.replica = takes_turns ? number % replicas : number / of_replica;
  for (int64_t rank = 0; rank < run.layout->num_ranks(); ++rank)
    if (spec::position_of(*run.layout, rank).data == *place.replica) place.ranks.push_back(rank);
  return place;
}

std::string RunSamples::fate(int64_t step) const {
  if (const families::RecordedStep* record = steps_.find(step)) return record->skipped ? "update not made" : "trained";
  for (const config::StepRange& range : run_.config.training.skipped_steps)
    if (range.first <= step && step <= range.last) return "passed over";
  return steps_.records.empty() || step > steps_.records.back().step ? "to come" : "not recorded";
}

std::optional<bool> RunSamples::equals_record(int64_t step) {
  const families::RecordedStep* const record = steps_.find(step);
  if (record == nullptr || record->sample_hash.empty() || !families::hashes_ids_alone(run_.config)) return std::nullopt;
  const plan::SampleRange range = steps_.samples.of(step);
  data::Sample read;
  uint64_t sum = 0;
  for (int64_t sample = range.first; sample < range.first + range.count; ++sample) {
    train_->read(sampler_.sample(sample), read);
    const std::vector<int64_t>& ids = read.arrays[data::GptDataset::kIds];
    Hasher hasher;
    data::hash_sample(hasher, sample, std::span(ids).first(ids.size() - 1), ids.back());
    sum += hasher.digest();
  }
  return hex64(sum) == record->sample_hash;
}

std::vector<std::string> RunSamples::order_changes() const {
  if (!data::is_order_text(run_.sample_order)) return {};
  data::OrderFingerprint present = train_->fingerprint(sampler_.description());
  present.lengths = run_.config.data.length_stages;
  return data::order_changes(data::parse_order(run_.sample_order), present);
}

data::DocumentRange sequences_of(const data::TokenStore& store, int64_t document) {
  return {store.first_sequence(document), store.first_sequence(document + 1)};
}

std::vector<Sighting> find_sightings(RunSamples& samples, const std::vector<data::TracedFile>& files, int64_t document,
                                     int64_t& num_unread) {
  std::map<std::pair<int64_t, int64_t>, Sighting> seen;  // by sample of the run, and place in it
  const int64_t end = samples.steps().samples.end();
  for (const data::TracedFile& file : files)
    for (const data::FoundPiece& found : samples.train().find(file, sequences_of(*file.store, document))) {
      const std::vector<int64_t> places = samples.sampler().places(found.number, end);
      num_unread += places.empty();
      for (const int64_t sample : places)
        seen.emplace(std::pair(sample, found.piece.at), Sighting{samples.place(sample), found.piece});
    }
  std::vector<Sighting> all;
  for (auto& [where, one] : seen) all.push_back(std::move(one));
  return all;
}

std::string to_text(const SamplePlace& place) {
  std::string text;
  if (place.replica) {
    std::vector<std::string> ranks;
    for (const int64_t rank : place.ranks) ranks.push_back(std::to_string(rank));
    if (ranks.size() > kMostRanksNamed) {
      ranks.resize(kMostRanksNamed);
      ranks.push_back("...");
    }
    text = concat("replica ", *place.replica, " (", place.ranks.size() == 1 ? "rank " : "ranks ", join(ranks, ", "),
                  "), micro-batch ");
  } else {
    text = "micro-batch of all replicas ";
  }
  return concat(text, place.micro_batch, ", row ", place.row);
}

nlohmann::ordered_json to_json(const SamplePlace& place) {
  using Json = nlohmann::ordered_json;
  return {{"step", place.step},
          {"sample", place.sample},
          {"replica", place.replica ? Json(*place.replica) : Json()},
          {"ranks", place.ranks},
          {"micro_batch", place.micro_batch},
          {"row", place.row}};
}

std::unique_ptr<text::Tokenizer> tokenizer_of_run(const families::RecordedRun& run) {
  const text::TokenizerOptions& options = run.config.tokenizer;
  return text::load_tokenizer(run.tokenizer_folder.empty() ? options : text::moved_to(options, run.tokenizer_folder));
}

std::string text_of_piece(const data::SamplePiece& piece, const text::Tokenizer& tokenizer) {
  std::vector<int32_t> ids(static_cast<size_t>(piece.length));
  piece.store->read(piece.sequence, piece.offset, piece.length, ids.data());
  return tokenizer.decode(ids);
}

const std::string& source_of(const data::SampleSource& train, int64_t number) {
  return train.source_names()[static_cast<size_t>(train.source_of(number))];
}

nlohmann::ordered_json sample_json(RunSamples& samples, int64_t sample, const text::Tokenizer* tokenizer) {
  const data::SampleSource& train = samples.train();
  const int64_t number = samples.sampler().sample(sample);
  nlohmann::ordered_json object = to_json(samples.place(sample));
  object["number"] = number;
  object["source"] = source_of(train, number);
  object["pieces"] = nlohmann::ordered_json::array();
  for (const data::SamplePiece& piece : train.pieces(number)) {
    const data::TokenStore& store = *piece.store;
    object["pieces"].push_back(
        {{"file", store.prefix()},
         {"document", document_of(store, piece.sequence)},
         {"sequence", piece.sequence},
         {"offset", piece.offset},
         {"length", piece.length},
         {"at", piece.at},
         {"byte", store.index().start_bytes(piece.sequence) + piece.offset * bytes_per_token(store.type())}});
    if (tokenizer != nullptr) object["pieces"].back()["text"] = text_of_piece(piece, *tokenizer);
  }
  return object;
}

std::pair<std::vector<std::string>, std::vector<std::string>> split_at_dashes(const std::vector<std::string>& words) {
  const auto dashes = std::find(words.begin(), words.end(), "--");
  return {{words.begin(), dashes}, {dashes == words.end() ? dashes : dashes + 1, words.end()}};
}

}  // namespace espalier
