// Texts after prompts, by the engine, or with neighbours: what `espalier generate` asks for.
#pragma once

#include <functional>
#include <vector>

#include "infer/generate.h"
#include "infer/load_model.h"

namespace espalier::infer {

// As generate(), of a model whose weights have no gradients. Each prompt's answer is that which it gets alone, to the
// last bit, and as many run at once as their keys and values have room for (2 GiB of them, or one
// text's where that needs more). With config.find_neighbors the texts are written one after another.
std::vector<Generated> continue_prompts(const LoadedModel& loaded, const std::vector<std::vector<int32_t>>& prompts,
                                        const GenerateConfig& config, const TokenCallback& on_token);

// Many texts: number n continues prompts[n / texts_of_prompt] with the draws of stream n, whatever runs beside it.
struct ManyTexts {
  const std::vector<std::vector<int32_t>>& prompts;
  int64_t texts_of_prompt = 1;
  int64_t first = 0, end = 0;  // numbers
  int64_t at_once = 64;        // at most, that are written together
};

// `take` gets the texts in the order of their numbers, each as soon as those before it are ready: memory does not grow
// with their number.
void continue_many(const LoadedModel& loaded, const ManyTexts& texts, const GenerateConfig& config,
                   const TokenCallback& on_token, const std::function<void(int64_t number, Generated)>& take);

}  // namespace espalier::infer
