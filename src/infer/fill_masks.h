// Masked words of a text, filled in by a model that was trained to (BERT).
#pragma once

#include <string>
#include <vector>

#include "infer/generate.h"
#include "infer/load_model.h"

namespace espalier::infer {

struct FilledMasks {
  Generated tokens;  // the whole prompt, and one generated id for each mask in it
  std::string text;  // the prompt with its masks filled in
};

// "[MASK]" and "[SEP]", as the tokenizer writes them, are those tokens; CLS and SEP are put around the prompt. Each
// mask is drawn (greedy: the most likely token taken) as if the others stayed masked, as transformers' fill-mask
// pipeline has it. A prompt without a mask, or longer than the model's positions: UserError.
std::vector<FilledMasks> fill_masks(const LoadedModel& loaded, const std::vector<std::string>& prompts,
                                    const SamplingConfig& sampling);

}  // namespace espalier::infer
