// A Hugging Face folder becomes a checkpoint: step 0 of a run folder, with weights, tokenizer and the options that make
// the model, and no optimizer state. `train --load --finetune`, `generate` and `checkpoint` take it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "convert/hf/codec.h"
#include "store/safetensors.h"

namespace espalier::convert {

// Where a checkpoint keeps the config.json that it was made from, for an export to take over what it does not know.
inline constexpr const char* kKeptConfig = "huggingface/config.json";

// In the run folder: the options of the model, as a recipe.
inline constexpr const char* kModelRecipe = "model.toml";

struct ImportOptions {
  std::filesystem::path input;        // with config.json and weights
  std::filesystem::path save;         // the run folder that it becomes, for the paths in its configuration
  std::optional<store::DType> dtype;  // fp32, bf16 or fp16; most weights' own unless given
  // Rows of our embedding: exactly `pad_vocab_size_to`, or theirs rounded up to a multiple of the other.
  int64_t make_vocab_size_divisible_by = 1;
  std::optional<int64_t> pad_vocab_size_to;
};

struct ImportReport {
  HfModel model;
  std::filesystem::path step_folder;
  int64_t num_tensors = 0, bytes = 0;  // of ours
  std::vector<std::string> notes;      // what the user should know
};

// Writes the run into `run_folder`. What is missing, left over, of another shape, or cannot be represented is a
// UserError that lists all of it, before anything is written. Tensors pass in pieces, of which a few MiB are in memory
// at a time.
ImportReport import_hf(const ImportOptions& options, const std::filesystem::path& run_folder);

}  // namespace espalier::convert
