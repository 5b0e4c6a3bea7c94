// Where the stages of a run begin, and what the training set is mixed from in each: the words of --data-stages; and how
// long its sequences are: those of --seq-length-stages.
//
//   "5000: 0.5 data/web, 0.5 data/code"                     from step 5000 on (after 5,000 steps)
//   "2_000_000 samples: 0.5 0:0.95 data/web, 1 data/code"   from sample 2,000,000 of the run, with a range of documents
//   "40_000_000_000 tokens: data/code"
//
// Weights, ranges and prefixes are those of --data-path and of weighted split paths.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/splits.h"

namespace espalier::data {

struct DataSource {
  std::string prefix;                  // of .bin and .idx, but for the endings
  double weight = 1;                   // as given
  std::optional<FractionRange> range;  // unset: the set's part of DataPlan::split
};

enum class StageUnit { kSteps, kSamples, kTokens };

// How much of the run comes before a stage.
struct StageStart {
  int64_t amount = 0;
  StageUnit unit = StageUnit::kSteps;
  bool operator==(const StageStart&) const = default;
};

// "5000", "5000 steps" or "iterations", "2_000_000 samples", "1_000_000 tokens". Throws a UserError that quotes the
// text.
StageStart parse_stage_start(const std::string& text);

// "START: REST" in its two parts. Throws a UserError that quotes the text and says `form`.
std::pair<StageStart, std::string> split_stage(const std::string& text, const std::string& form);

// A stage of a training set.
struct DataStage {
  StageStart start;
  std::vector<DataSource> sources;  // a weight counts only among several
};

DataStage parse_data_stage(const std::string& text);

// The first sample of the stage: of tokens, the sample that begins after that many or with them inside of it. Steps
// need to know the batch: they are a UserError here.
int64_t first_sample_of(const StageStart& start, int64_t sequence_length);

// How long the sequences of a run are from one of its samples on (--seq-length-stages). A sample of the run's sequence
// length is divided: it holds several sequences of `length` tokens, one after another, which neither see each other nor
// share positions. Or it is truncated to its first `length` tokens.
struct LengthStage {
  int64_t first_sample = 0, length = 0;
  bool truncates = false;
  bool operator==(const LengthStage&) const = default;
};

// "START: LENGTH".
std::pair<StageStart, int64_t> parse_length_stage(const std::string& text);

// That of a sample of the run; the first samples of `stages` rise. Before the first it has length `full`.
LengthStage length_at(const std::vector<LengthStage>& stages, int64_t sample, int64_t full);

// A weight above 0; `what` names it in the UserError.
double parse_weight(const std::string& word, const std::string& what);

}  // namespace espalier::data
