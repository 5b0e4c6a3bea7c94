// What a Retro reads besides its text.
#pragma once

#include <string>

#include "apps/options/neighbor_options.h"
#include "infer/generate.h"
#include "infer/load_model.h"

namespace espalier {

struct NeighborSource {
  infer::FindNeighbors find;  // null: the model reads its text alone
  std::string origin;         // two that are equal find the same
};

// By --retro-workdir, else by the folder that the run was trained with. None for a family or run without neighbours,
// and with --retro-without-neighbors. UserErrors: options that the model cannot follow, a folder that is gone or of
// another chunk length or tokenizer. `load`: what the model was loaded from, for messages.
NeighborSource neighbor_source(const infer::LoadedModel& loaded, const NeighborOptions& options,
                               const std::string& load, int threads);

// Whether the model was trained to read neighbours.
bool reads_neighbors(const infer::LoadedModel& loaded);

}  // namespace espalier
