// A recipe of a GPT from one number, its depth: every other setting by a rule, with the reason.
//
//   const DepthRecipe recipe = make_depth_recipe({.depth = 12, .vocabulary = 50'257});
//   write(to_toml(recipe));
//
// Width and heads follow from the depth, the number of tokens from that of the parameters (Hoffmann et al. 2022,
// "Training Compute-Optimal Large Language Models"), batch and learning rate from the FLOPs of the whole run (Bi et al.
// 2024, "DeepSeek LLM", section 3.1).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace espalier::families {

struct DepthRequest {
  int64_t depth = 0;                  // layers, from 1 on
  int64_t vocabulary = 50'257;        // tokens, before padding
  std::optional<int64_t> seq_length;  // tokens; by the depth where it is not given
  std::optional<int64_t> tokens;      // to train on; by the parameters where not given
  // Token files, and how many tokens each has. With none, the caller gives --data-path to `train`.
  struct Corpus {
    std::string prefix;
    int64_t tokens = 0;
  };
  std::vector<Corpus> corpora;
  std::string tokenizer;  // --tokenizer-name-or-path; empty: the caller gives it to `train`
};

struct DepthSetting {
  std::string table, key;     // "network_size", "num_layers"
  std::string value, reason;  // as in TOML; a sentence or two
};

struct DepthRecipe {
  std::vector<DepthSetting> settings;  // those of a table next to each other
  int64_t parameters = 0;              // with the padded vocabulary
  int64_t tokens = 0, steps = 0, batch_tokens = 0;
  double flops = 0;                // of the whole run: matrix products and attention
  std::optional<double> epochs;    // of the corpora together
  std::vector<std::string> notes;  // what a reader should know first
};

// UserError (kUsage) for what no recipe can be made of.
DepthRecipe make_depth_recipe(const DepthRequest& request);

std::string to_toml(const DepthRecipe& recipe, const DepthRequest& request);

}  // namespace espalier::families
