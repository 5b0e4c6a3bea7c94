// The weights of a Hugging Face folder, whichever way they are stored, by name; and such a folder written.
//
// Looked for in this order, as transformers does: model.safetensors, model.safetensors.index.json and its shards,
// pytorch_model.bin, pytorch_model.bin.index.json and its shards. All problems of a folder (shards that are missing,
// names of the index that their shard lacks, names that occur in two shards) come in one UserError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "store/tensor_view.h"

namespace espalier::store {

// name -> tensor. `path` is the folder, or one .safetensors, .bin, .pt, .pth or .index.json file.
std::map<std::string, TensorView> open_weights(const std::filesystem::path& path);

// Writes model.safetensors, or model-00001-of-00003.safetensors ... and model.safetensors.index.json when the tensors
// take more than `max_shard_bytes`. Tensors keep their order and fill one shard after another; a larger one has a shard
// to itself. Tensors of a file are asked for by two threads at once. Names must differ. Each file appears under its
// name when it is complete; the index comes last. Returns the names of the files written.
std::vector<std::string> write_weights(const std::filesystem::path& folder,
                                       const std::vector<std::pair<std::string, TensorSource>>& tensors,
                                       int64_t max_shard_bytes);

}  // namespace espalier::store
