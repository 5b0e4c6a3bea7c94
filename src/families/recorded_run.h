// A run as its folder records it: the options and the layout with which it trained a step, and which samples each step
// read. For commands that ask what a run did; whether it still trains does not matter.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "plan/step_samples.h"
#include "spec/grid.h"

namespace espalier::families {

struct RecordedRun {
  std::filesystem::path folder;
  config::RunConfig config;
  std::string options_from;  // the file that they were read from
  // The steps that were, or will be, trained with these options and this layout, as far as checkpoints record it.
  int64_t first_step = 1, last_step = std::numeric_limits<int64_t>::max();
  std::optional<spec::GridShape> layout;   // nothing where no record says
  std::filesystem::path tokenizer_folder;  // of a checkpoint; empty where there is none
  std::string sample_order;                // data::OrderFingerprint of that checkpoint, as text; or empty
};

// `folder` is a run folder, or a step folder in one. Options and layout are those of the attempt that trained `step`:
// of the first checkpoint at or after it, and where there is none those with which the run was last started. Without
// `step`: those of the last start, or of the newest checkpoint where config.toml is missing.
// `more`: options of train that replace them. UserError where there is no run, or its options are not read.
RecordedRun read_recorded_run(const std::filesystem::path& folder, std::optional<int64_t> step,
                              const std::vector<std::string>& more = {});

// A step that the run recorded.
struct RecordedStep {
  int64_t step = 0;
  bool skipped = false;     // its update was not made
  std::string sample_hash;  // 16 digits
};

struct RecordedSteps {
  plan::StepSamples samples;
  std::vector<RecordedStep> records;  // rising; empty where metrics.jsonl is missing

  const RecordedStep* find(int64_t step) const;
};

// From metrics.jsonl, the newest checkpoint, and the options for what neither records.
RecordedSteps read_recorded_steps(const RecordedRun& run);

}  // namespace espalier::families
