// The folder of a run (--save): its checkpoints, its lock, its records.
//
//   step_00001000/            a complete checkpoint (it has a manifest)
//   step_00001100.partial/    one that was being written when the process died
//   step_00001200.superseded/ one that was set aside when the run continued from an older step
//   step_00001300.incomplete/ one without a manifest (an interrupted copy), set aside before it is in the way of a save
//   step_00001400.damaged/    one that a restart could not load, set aside
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "store/run_lock.h"

namespace espalier::store {

struct StepEntry {
  int64_t step = 0;
  std::filesystem::path folder;
};

// Each list is in the order of steps.
struct RunListing {
  std::vector<StepEntry> complete;
  std::vector<StepEntry> partial;     // unfinished: *.partial, and step folders without a manifest
  std::vector<StepEntry> superseded;  // set aside: *.superseded, *.incomplete, *.damaged; and *.removing
};

std::string step_folder_name(int64_t step);                      // "step_00001000"
std::optional<int64_t> step_of_folder(const std::string& name);  // of a complete folder's name

// Empty for a folder that does not exist.
RunListing list_steps(const std::filesystem::path& run_folder);

// What --load, --ckpt-step and --save mean together. `load` is a run folder (newest complete step, or `ckpt_step`) or
// a step folder. Nothing there yet and `load` is `save`: nullopt, a new run starts (the caller says so). Anything
// else that finds nothing is a UserError (kMissingInput) that lists what exists, and names the command that imports
// where the folder is another program's checkpoint. Newer step folders that are skipped, having no manifest, are
// named in a warning; where there is nothing but such folders no new run starts.
//
// A step that is asked for in the folder that is saved to counts once: see remember_step_asked_for.
std::optional<StepEntry> find_checkpoint(const std::filesystem::path& load, std::optional<int64_t> ckpt_step,
                                         const std::filesystem::path& save);

// Sets aside what is beyond the step from which a run continues in its own folder, so that the newest complete
// folder is always the newest of this run: later step folders become *.superseded, records of later steps move from
// metrics.jsonl to metrics.superseded.jsonl (with a last line that was cut off). Safe to be killed in and repeated.
struct Superseded {
  std::vector<int64_t> steps;
  int64_t num_records = 0;
  std::vector<std::string> removed;     // leftovers of saves and removals that were interrupted
  std::vector<std::string> incomplete;  // new names of step folders without a manifest
};
Superseded supersede_after(const std::filesystem::path& run_folder, int64_t step);

// To be called, under the lock, before a run saves into `save`. `loaded` is the checkpoint that it continues from (none
// for a new run and for --finetune), `first_step` the step that it begins at. Checkpoints there that it does not
// continue from are refused (UserError, kCannotCreate): they would be mixed with its own. What is left of an attempt
// that went further is set aside as supersede_after does. Nobody else writes here, so what interrupted saves and
// removals have left
// (*.partial, *.removing) is removed: it would take the room of the next save. Step folders without a manifest beyond
// `first_step` are renamed to *.incomplete: nothing in them is lost, and their steps can be saved.
Superseded prepare_save_folder(const std::filesystem::path& save, const std::optional<StepEntry>& loaded,
                               int64_t first_step);

// Remembers, under the lock, that this run began at the step that its command asks for (--ckpt-step, or a step folder
// of `save` as `load`): started again by the same command it continues from its newest checkpoint. Another command
// forgets it: one that asks for another step, or for none.
void remember_step_asked_for(const std::filesystem::path& load, std::optional<int64_t> ckpt_step,
                             const std::filesystem::path& save);

// A checkpoint that cannot be loaded because a file of it is damaged, missing or unreadable.
class DamagedCheckpoint : public UserError {
 public:
  DamagedCheckpoint(const std::string& message, ExitCode code, std::filesystem::path step_folder)
      : UserError(message, code), step_folder_(std::move(step_folder)) {}
  const std::filesystem::path& step_folder() const { return step_folder_; }

 private:
  std::filesystem::path step_folder_;
};

// Sets a damaged checkpoint aside, under a lock that is taken here, where it is the newest of `save` and there is an
// older one, which then is the newest. Returns what that costs, for people; nullopt where nothing was done.
std::optional<std::string> set_damaged_aside(const std::filesystem::path& step_folder,
                                             const std::filesystem::path& save);

// The other complete checkpoints next to a step folder, as advice for an error: "" when there are none.
std::string other_steps_hint(const std::filesystem::path& step_folder);

}  // namespace espalier::store
