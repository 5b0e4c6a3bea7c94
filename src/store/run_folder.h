// The folder of a run (--save): its checkpoints, its lock, its records.
//
//   step_00001000/            a complete checkpoint (it has a manifest)
//   step_00001100.partial/    one that was being written when the process died
//   step_00001200.superseded/ one that a later resume from an older step left behind
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace espalier::store {

struct StepEntry {
  int64_t step = 0;
  std::filesystem::path folder;
};

// Each list is in the order of steps.
struct RunListing {
  std::vector<StepEntry> complete;
  std::vector<StepEntry> partial;     // unfinished: *.partial, and step folders without a manifest
  std::vector<StepEntry> superseded;  // set aside: *.superseded, *.removing
};

std::string step_folder_name(int64_t step);                      // "step_00001000"
std::optional<int64_t> step_of_folder(const std::string& name);  // of a complete folder's name

// Empty for a folder that does not exist.
RunListing list_steps(const std::filesystem::path& run_folder);

// What --load, --ckpt-step and --save mean together. `load` is a run folder (newest complete step, or `ckpt_step`) or
// a step folder. Nothing there yet and `load` is `save`: nullopt, a new run starts (the caller says so). Anything
// else that finds nothing is a UserError (kMissingInput) that lists what is there.
std::optional<StepEntry> find_checkpoint(const std::filesystem::path& load, std::optional<int64_t> ckpt_step,
                                         const std::filesystem::path& save);

// Sets aside what lies beyond the step from which a run goes on in its own folder, so that the newest complete
// folder is always the newest of this run: later step folders become *.superseded, records of later steps move from
// metrics.jsonl to metrics.superseded.jsonl (with a last line that was cut off). Safe to be killed in and repeated.
struct Superseded {
  std::vector<int64_t> steps;
  int64_t num_records = 0;
};
Superseded supersede_after(const std::filesystem::path& run_folder, int64_t step);

// To be called, under the lock, before a run saves into `save`. `loaded` is the checkpoint that it goes on from (none
// for a new run and for --finetune), `first_step` the step that it begins at. Checkpoints there that it does not go on
// from are refused (UserError, kCannotCreate): they would be mixed with its own. What is left of an attempt that went
// further is set aside as supersede_after does.
Superseded prepare_save_folder(const std::filesystem::path& save, const std::optional<StepEntry>& loaded,
                               int64_t first_step);

// The other complete checkpoints beside a step folder, as advice for an error: "" when there are none.
std::string other_steps_hint(const std::filesystem::path& step_folder);

// Exclusive use of a run folder by one process, until destroyed or the process ends in any way. Creates the folder.
// A second taker gets a UserError (kCannotCreate) that names host, process and start of the holder.
class RunLock {
 public:
  explicit RunLock(const std::filesystem::path& run_folder);
  // nullopt when another process holds it.
  static std::optional<RunLock> take_if_free(const std::filesystem::path& run_folder);
  ~RunLock();
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&& other) noexcept;
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  explicit RunLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

}  // namespace espalier::store
