// The recipe of `espalier detoxify run`, a TOML file, and the commands that it stands for.
//
//   [output]      folder = "detox"
//   [model]       load = "runs/gpt"
//   [generate]    num_samples = 100000  tokens_to_generate = 1000  top_p = 0.9
//   [score]       scorer = "python3 docs/scorers/perspective.py"
//   [filter]      keep = 0.5
//   [train]       train_iters = 78  lr = 2e-5 ...
//   [launch]      nproc_per_node = 8
//   [measure]     sample_input_file = "prompts.jsonl"  samples_per_prompt = 25  tokens_to_generate = 20
//   [perplexity]  text = "held-out.txt"
//
// The keys of a table are the options of the command that it is for: generate, detoxify score and filter, train gpt.
// docs/detoxify.md has all of it.
#pragma once

#include <string>
#include <vector>

#include "apps/options/generate_options.h"
#include "base/error.h"
#include "launch/step_sequence.h"

namespace espalier {

struct DetoxifyRecipe {
  std::string folder;
  std::string step_folder;        // the checkpoint of the model
  std::string attribute;          // of the scores, that says how toxic a text is
  std::string scorer;             // command for /bin/sh
  std::string prompts, held_out;  // of [measure] and [perplexity]; empty without
  GenerateOptions texts, answers;
  int64_t num_prompts = 0, num_ranks = 1, num_steps = 0;
  // Options of the commands, without those that say the model and files.
  std::vector<std::string> texts_words, answers_words, scorer_words, filter_words, perplexity_words, tokenizer_words,
      train_words;

  std::string path(const std::string& name) const { return folder + "/" + name; }
  // What a step prints: "before-metrics" -> FOLDER/before-metrics.json.
  std::string result_file(const std::string& step) const { return path(step + ".json"); }
};

// Adds all that is wrong, with file and line; the recipe is whole only if nothing was added. Writes nothing.
DetoxifyRecipe read_detoxify_recipe(const std::string& file, Problems& problems);

// Options of `train gpt`: from the model of the recipe, or from what an earlier attempt has saved.
std::vector<std::string> words_of_training(const DetoxifyRecipe& recipe);

// In the order in which they run: how the model is, its texts, training, how it is then.
std::vector<launch::CommandStep> detoxify_steps(const DetoxifyRecipe& recipe);

std::vector<std::string> operator+(std::vector<std::string> left, const std::vector<std::string>& right);

}  // namespace espalier
