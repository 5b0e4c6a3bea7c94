// Which checkpoints of a run to remove, and removing them.
//
// The newest complete checkpoint always stays. A folder is renamed before it is emptied, so one that was half removed
// when the power failed never passes for a checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "store/run_folder.h"

namespace espalier::store {

struct PruneRule {
  int64_t keep_last = 0;   // the number of newest steps to keep; 0: no such rule
  int64_t keep_every = 0;  // steps divisible by it; 0: no such rule
  // Steps that went wrong: the newest checkpoint before each stays, and the first at or after it.
  std::vector<int64_t> spikes = {};
  std::vector<int64_t> epochs = {};  // steps at which passes over the data ended: the first at or after each stays
  std::vector<int64_t> keep = {};    // these stay, too
  // Newer steps stay as they are, and the others are judged as if these did not exist.
  std::optional<int64_t> up_to = {};
};

struct PrunePlan {
  std::vector<StepEntry> keep;
  std::vector<StepEntry> remove;     // complete ones
  std::vector<StepEntry> leftovers;  // unfinished and set-aside folders; removed only under the run's lock
};

PrunePlan plan_prune(const RunListing& listing, const PruneRule& rule);
void remove_step_folder(const StepEntry& entry);
int64_t folder_bytes(const std::filesystem::path& folder);

}  // namespace espalier::store
