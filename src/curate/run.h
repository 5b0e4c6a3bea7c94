// A sequence of steps over the documents of some inputs, into outputs.
//
// Steps that see all documents first (Pass) cut the sequence into stages; between two stages, documents wait on disk.
// With a work folder that stays, every stage leaves its shards there (shard_store.h): a resumed run makes those that
// are not complete, and several processes that run the same plan, on one machine or on several, share them among
// themselves, and the parts of the passes (pass_work.h) as well. Each of them reads all of the input. The outputs are
// the same for any number of workers, processes and kills.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "curate/input.h"
#include "curate/output.h"
#include "curate/shard_store.h"
#include "curate/step.h"
#include "curate/tally.h"

namespace espalier::curate {

struct PlannedStep {
  std::string name;
  std::unique_ptr<StepMaker> maker;  // checked
};

inline constexpr int64_t kShardBytes = int64_t{32} << 20;
inline constexpr int64_t kLeastMemory = int64_t{1} << 20;  // of what users give: less is a unit that was forgotten

struct RunPlan {
  std::vector<InputSource> sources;
  std::vector<PlannedStep> steps;
  int64_t workers = 1, memory_bytes = int64_t{1} << 30;
  std::filesystem::path work_folder;  // for what lies between stages
  bool keeps_work = false;            // so that a later run can resume from it; else the folder is removed
  int64_t shard_bytes = kShardBytes;  // of input; a run that resumes must have the same
  int64_t most_documents = 0;         // only records with numbers below; 0: all
  bool measures = false;              // keeps what steps measure of every document (8 bytes each), for percentiles
};

struct RunResult {
  InputTally input;
  std::vector<StepTally> steps;               // as the plan's
  std::vector<nlohmann::ordered_json> facts;  // of each step that is a pass; else null
  struct File {
    std::string name;
    int64_t first_number = 0;
  };
  std::vector<File> files;  // in the order of the input
  int64_t num_shards = 0;   // of each stage, where they are kept
  double seconds = 0;
};

// Takes the documents that come through, in order; where the work is kept, it may be empty: they lie in the shards of
// the last stage.
using DocumentTaker = std::function<void(Document&&)>;

// What is wrong with the order of the steps: a pass after one that may split. Empty if nothing is.
std::string order_problem(const std::vector<PlannedStep>& steps);

RunResult run(const RunPlan& plan, const DocumentTaker& take);

// The shards that run() left, of each stage.
std::vector<ShardStore> open_shards(const RunPlan& plan);

}  // namespace espalier::curate
