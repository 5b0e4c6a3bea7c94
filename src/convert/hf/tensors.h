// The tensors of a Hugging Face folder and ours: one table for each family.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "convert/hf/config.h"
#include "convert/tensor_map.h"

namespace espalier::convert {

struct HfLayout {
  int64_t vocab_rows = 0;   // of their embedding, at most the rows of ours; ours beyond are padding
  bool has_prefix = true;   // "transformer." or "model." before the names of the base model
  bool stores_head = true;  // lm_head.weight exists; with a tied output layer it is a copy of the embedding
};

// `config` holds our rows (padded_vocab_size). Checked.
TensorMap hf_tensor_map(HfFamily family, const families::GptConfig& config, const HfLayout& layout);

// How a folder with tensors of these names is laid out.
HfLayout layout_of(const std::set<std::string>& names, HfFamily family, int64_t vocab_rows);

// Buffers that some releases store beside the weights (masks, frequencies): no part of the model.
bool is_buffer(const std::string& name);

}  // namespace espalier::convert
