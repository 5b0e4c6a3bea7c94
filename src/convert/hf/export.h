// A checkpoint becomes a Hugging Face folder: config.json, generation_config.json, safetensors in shards, tokenizer.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "convert/hf/codec.h"
#include "store/safetensors.h"

namespace espalier::convert {

struct ExportOptions {
  std::filesystem::path step_folder;
  const HfCodec* codec = nullptr;     // that it is to be; else the one it came from, or the first that can hold it
  std::optional<store::DType> dtype;  // of the files; the compute type unless given. fp32: master weights, if there
  std::vector<std::string> model_options = {};  // of train: instead of those that the checkpoint was saved with
  int64_t max_shard_bytes = int64_t{5'000'000'000};
  bool ema = false;                 // the moving average of the weights (train --ema)
  bool keep_vocab_padding = false;  // rows of the embedding beyond the tokenizer's ids
};

struct ExportReport {
  HfModel model;  // its vocabulary's padded_size: rows that were written
  int64_t num_tensors = 0, bytes = 0;
  std::vector<std::string> files;  // with weights
  std::vector<std::string> notes;
};

// UserError that says why, if no family of transformers that is written here can hold the model of a run, or express
// what it computes.
void check_hf_export(const config::RunConfig& run);

// Writes into `folder`, which exists. Every block of the checkpoint is checked against its checksum on the way.
// UserError that says why where no family of transformers, or not the one asked for, can hold the model.
ExportReport export_hf(const ExportOptions& options, const std::filesystem::path& folder);

}  // namespace espalier::convert
