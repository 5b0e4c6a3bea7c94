// The samples of a run, from its folder: what `espalier data who`, `data where` and the page of runs ask.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/sample_pieces.h"
#include "data/sample_source.h"
#include "data/sampler.h"
#include "families/recorded_run.h"
#include "text/tokenizer.h"

namespace espalier {

// Where a sample of the run was, or will be, read.
struct SamplePlace {
  int64_t step = 0;
  int64_t sample = 0;  // of the run
  int64_t micro_batch = 0, row = 0;
  std::optional<int64_t> replica;  // nothing where the layout is not known
  std::vector<int64_t> ranks;      // of that replica
};

class RunSamples {
 public:
  // `step`: whose options count (families::read_recorded_run). `more`: options of train that replace the run's. A
  // UserError for families whose samples are not looked up.
  RunSamples(const std::string& folder, std::optional<int64_t> step, const std::vector<std::string>& more);

  const families::RecordedRun& run() const { return run_; }
  const families::RecordedSteps& steps() const { return steps_; }
  const data::SampleSource& train() const { return *train_; }
  data::Sampler& sampler() { return sampler_; }

  // What a step reads; a UserError for one after the run's last.
  plan::SampleRange samples_of(int64_t step) const;
  // Of a sample that a step of the run reads, in the layout of that step.
  SamplePlace place(int64_t sample);
  // "trained", "update not made", "passed over" (--skip-train-iteration-range), "to come", "not recorded"
  std::string fate(int64_t step) const;

  // Whether the ids of a step's samples are those that it read, by the hash in its record; nothing where there is none.
  std::optional<bool> equals_record(int64_t step);
  // How the order of the samples differs from the one that the checkpoint holds; empty where it does not.
  std::vector<std::string> order_changes() const;

 private:
  const families::RecordedRun& run_of_step(int64_t step);

  std::string folder_;
  std::vector<std::string> more_;
  families::RecordedRun run_;
  std::vector<families::RecordedRun> others_;  // of other steps, as they were asked for
  families::RecordedSteps steps_;
  std::unique_ptr<const data::SampleSource> train_;
  data::Sampler sampler_;
};

// One time that a piece of a document is read.
struct Sighting {
  SamplePlace place;
  data::SamplePiece piece;
};

// Of a document: its only one, or its sentences.
data::DocumentRange sequences_of(const data::TokenStore& store, int64_t document);

// Each reading of that document of these files, in the order of the run; `num_unread` samples that hold it come after
// the run's end.
std::vector<Sighting> find_sightings(RunSamples& samples, const std::vector<data::TracedFile>& files, int64_t document,
                                     int64_t& num_unread);

// "replica 0 (rank 0), micro-batch 1, row 0"
std::string to_text(const SamplePlace& place);
// step, sample, replica, ranks, micro_batch, row
nlohmann::ordered_json to_json(const SamplePlace& place);

// The tokenizer that a checkpoint of the run carries, else the one that its options name. A UserError where neither
// exists.
std::unique_ptr<text::Tokenizer> tokenizer_of_run(const families::RecordedRun& run);
std::string text_of_piece(const data::SamplePiece& piece, const text::Tokenizer& tokenizer);
// The data set of the blend that sample `number` of the set is from.
const std::string& source_of(const data::SampleSource& train, int64_t number);
// Place, number in the order of the set, source, and pieces; their texts if there is a tokenizer.
nlohmann::ordered_json sample_json(RunSamples& samples, int64_t sample, const text::Tokenizer* tokenizer);

// The words of a command line before and after "--", the latter options of train.
std::pair<std::vector<std::string>, std::vector<std::string>> split_at_dashes(const std::vector<std::string>& words);

}  // namespace espalier
