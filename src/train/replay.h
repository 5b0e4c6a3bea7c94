// Some steps of a run once more, the last of them watched: what espalier replay compares.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "config/run_config.h"
#include "dist/grid.h"
#include "train/recording.h"

namespace espalier::train {

struct ReplayRequest {
  int64_t step = 0;                        // the last step to be made
  std::filesystem::path checkpoint_after;  // of that step, to compare with; or empty
};

struct ReplayedStep {
  std::vector<std::string> records;        // of each step made, as metrics.jsonl has them
  std::vector<Observation> observations;   // of this rank, of the last step
  std::vector<std::string> different;      // tensors of the checkpoint after it that this rank holds otherwise
  int64_t num_tensors = 0;                 // that were compared
  std::vector<std::string> bad_documents;  // of the sample with the first value of this rank that is not finite
};

// Called by all ranks of the grid. The run begins from config.checkpoint.load, or from its initialization, and
// continues to the step; it neither saves nor evaluates.
ReplayedStep run_for_replay(const config::RunConfig& config, const OptionTable& table, const ReplayRequest& request,
                            const dist::Grid& grid);

// As text, to come back from a forked rank.
std::string to_text(const ReplayedStep& step);
ReplayedStep replayed_from_text(const std::string& text);

// "step 7: lm_loss 8.5 replayed, 8.25 recorded"; of `recorded`, a line of metrics.jsonl, all but what depends on the
// clock. Numbers are compared as they were written, to the last bit.
std::vector<std::string> record_differences(const std::string& replayed, const std::string& recorded);
// The largest relative difference of losses and gradient norm between the two.
double record_distance(const std::string& replayed, const std::string& recorded);

}  // namespace espalier::train
