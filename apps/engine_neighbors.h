// What a Retro reads besides its text, as `espalier generate` lets it.
#pragma once

#include "generate_options.h"
#include "infer/generate.h"
#include "infer/load_model.h"

namespace espalier {

struct NeighborSource {
  infer::FindNeighbors find;  // null: the model reads its text alone
  std::string origin;         // two that are equal find the same
};

// By --retro-workdir, else by the folder that the run was trained with. None for a family or run without neighbours,
// and with --retro-without-neighbors. UserErrors: options that the model cannot follow, a folder that is gone or of
// another chunk length or tokenizer.
NeighborSource neighbor_source(const infer::LoadedModel& loaded, const GenerateOptions& options);

// For commands that read none: a line of the log where the model could.
void say_without_neighbors(const infer::LoadedModel& loaded);

}  // namespace espalier
