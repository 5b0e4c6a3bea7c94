// Where a run began whose --load is another folder than its --save, or that finetunes or gives up its optimizer's state
// in one folder: `.began_from` in the folder of --save.
//
// Started again by the same command, by a restart, a scheduler or hand, such a run continues from its own newest
// checkpoint, with all its state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace espalier::store {

// What a command says of the beginning of its run.
struct Beginning {
  std::filesystem::path load;
  std::optional<int64_t> ckpt_step;
  bool finetune = false, no_load_optim = false;
  std::string optimizer;  // and what it keeps; with no_load_optim in one folder another one is another beginning
};

// True where the run in `save` began by the same words, and has saved a checkpoint since.
bool has_gone_on(const Beginning& asked_for, const std::filesystem::path& save);

// To be called under the lock of `save`, before its first checkpoint. `step`: that of the checkpoint in `load` that was
// taken; 0 where there was none. Nothing is written where the run continues what is in `save`: `load` is that folder,
// or in it, with neither --finetune nor --no-load-optim; a mark of the latter is removed then, as
// the same words after it ask for it once more.
void remember_beginning(const Beginning& beginning, int64_t step, const std::filesystem::path& save);

}  // namespace espalier::store
