// The state of a small GPT as the ranks of a layout hold it: names, files, types and parts, from the same plans as
// training; values are bits that follow from name and place, so that every element of every tensor is known.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ckpt/local_tensor.h"
#include "plan/layout.h"

namespace espalier::test {

// Twelve layouts of up to eight ranks and one of five: tensor ranks without a head, short vocabulary shards, replicas,
// interleaved stages, every ZeRO stage, context ranks.
const std::vector<std::string>& all_layouts();

// What a rank has to save.
std::vector<ckpt::TensorToSave> state_of(const plan::Layout& layout, int64_t rank);
// The same with other values, to be filled by a checkpoint.
std::vector<ckpt::TensorRequest> requests_of(const plan::Layout& layout, int64_t rank);
// Names of all tensors of the model.
std::vector<std::string> all_names();

// Throws when an element of a request is not what it has to be. Counts in `seen[name][element]` who holds it.
using Seen = std::map<std::string, std::vector<int>>;
void check_loaded(const std::vector<ckpt::TensorRequest>& requests, Seen& seen);
// Throws unless every element of every tensor of the model was seen.
void check_whole(const Seen& seen);

}  // namespace espalier::test
