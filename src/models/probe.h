// What a whole model computes of inputs that are the same every time: compared with another program's, the check of a
// conversion.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "nn/layer_builder.h"

namespace espalier::models {

using NamedTensors = std::map<std::string, at::Tensor>;

struct Probe {
  // [b, s] int64: "ids", and what else the family's models read.
  NamedTensors (*inputs)(const config::RunConfig& run) = nullptr;
  // One process, without dropout: "logits" [b, s, V], and what else the heads of the model give; fp32.
  NamedTensors (*outputs)(const nn::LayerBuilder& builder, const config::RunConfig& run,
                          const NamedTensors& inputs) = nullptr;
  // What of the model shows only at later positions than `length`: "its window of 4,096 tokens".
  std::vector<std::string> (*not_reached)(const config::RunConfig& run, int64_t length) = nullptr;
};

// Two rows of 37 ids, or of as many as the model takes, spread over the vocabulary.
at::Tensor probe_ids(int64_t max_positions, int64_t vocab_size);

}  // namespace espalier::models
