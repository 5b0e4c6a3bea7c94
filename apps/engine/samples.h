// Many texts into a file: what `espalier generate --genfile` and `--sample-input-file` ask of the engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/engine/neighbors.h"
#include "apps/options/generate_options.h"
#include "infer/load_model.h"
#include "infer/sampling.h"

namespace espalier {

// The ids of a prompt. An empty one starts after an end of document, as every document but the first of a training
// sample does.
std::vector<int32_t> prompt_ids(const text::Tokenizer& tokenizer, const std::string& prompt);

// Writes the texts in their order as they come. After a signal or a kill, the same options resume after the last
// whole line.
void write_samples(const infer::LoadedModel& loaded, const infer::SamplingConfig& sampling,
                   const NeighborSource& neighbors, const GenerateOptions& options);

}  // namespace espalier
