#include "store/prune.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "store/internal/plain_errors.h"

namespace espalier::store {

namespace fs = std::filesystem;

namespace {

// Whether it is the last before, or the first at or after, one of these steps. `next`: of the checkpoint after it.
bool is_beside_spike(int64_t previous, int64_t step, int64_t next, const std::vector<int64_t>& spikes) {
  return std::any_of(spikes.begin(), spikes.end(), [&](int64_t spike) {
    return (step < spike && next >= spike) || (step >= spike && previous < spike);
  });
}

// Whether it is the first at or after one of these steps.
bool is_first_after(int64_t previous, int64_t step, const std::vector<int64_t>& ends) {
  return std::any_of(ends.begin(), ends.end(), [&](int64_t end) { return step >= end && previous < end; });
}

}  // namespace

PrunePlan plan_prune(const RunListing& listing, const PruneRule& rule) {
  PrunePlan plan;
  std::vector<StepEntry> complete = listing.complete;
  if (rule.up_to) std::erase_if(complete, [&](const StepEntry& entry) { return entry.step > *rule.up_to; });
  const auto total = static_cast<int64_t>(complete.size());
  for (int64_t index = 0; index < total; ++index) {
    const StepEntry& entry = complete[static_cast<size_t>(index)];
    const int64_t newer = total - 1 - index;
    const bool is_last = newer == 0 || newer < rule.keep_last;
    const bool is_milestone = rule.keep_every > 0 && entry.step % rule.keep_every == 0;
    const bool is_named = std::find(rule.keep.begin(), rule.keep.end(), entry.step) != rule.keep.end();
    const auto step_at = [&](int64_t at) { return complete[static_cast<size_t>(at)].step; };
    const int64_t previous = index == 0 ? -1 : step_at(index - 1);
    const bool is_beside =
        is_beside_spike(previous, entry.step, newer == 0 ? entry.step : step_at(index + 1), rule.spikes) ||
        is_first_after(previous, entry.step, rule.epochs);
    (is_last || is_milestone || is_named || is_beside ? plan.keep : plan.remove).push_back(entry);
  }
  plan.leftovers = listing.partial;
  plan.leftovers.insert(plan.leftovers.end(), listing.superseded.begin(), listing.superseded.end());
  return plan;
}

void remove_step_folder(const StepEntry& entry) {
  fs::path doomed = entry.folder;
  try {
    if (doomed.extension() != ".removing") {
      doomed += ".removing";
      fs::rename(entry.folder, doomed);
      fsync_directory(doomed.parent_path());
    }
    fs::remove_all(doomed);
  } catch (const fs::filesystem_error& error) {
    throw UserError(concat("cannot remove '", entry.folder.string(), "': ", error.code().message()),
                    ExitCode::kInputOutput);
  }
}

int64_t folder_bytes(const fs::path& folder) {
  int64_t bytes = 0;
  with_plain_errors([&] {
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  });
  return bytes;
}

}  // namespace espalier::store
