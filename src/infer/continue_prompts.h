// Texts after prompts, by the engine: what `espalier generate` asks of it.
#pragma once

#include <vector>

#include "infer/generate.h"
#include "infer/load_model.h"

namespace espalier::infer {

// As generate(), of a model without an encoder, whose weights have no gradients. Each prompt's answer is that which it
// gets alone, to the last bit, and as many run at once as their keys and values have room for (2 GiB of them, or one
// text's where that needs more).
std::vector<Generated> continue_prompts(const LoadedModel& loaded, const std::vector<std::vector<int32_t>>& prompts,
                                        const GenerateConfig& config, const TokenCallback& on_token);

}  // namespace espalier::infer
