// A rank's part of a global tensor, to be saved or to be filled.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/zero_ranges.h"
#include "spec/shard.h"

namespace espalier::ckpt {

// Which elements of a global tensor a local one holds: spec::local_extents for a tensor rank, cut by
// spec::clip_to_local for a ZeRO shard. They cover the local tensor from its first element to its last, in that order;
// its own shape does not matter.
struct TensorPart {
  std::vector<int64_t> global_shape;
  std::vector<spec::Extent> extents;  // none: the rank holds nothing of the tensor
};

struct TensorToSave {
  std::string name;                     // global name
  std::string file;                     // store::weights_file(group), store::optimizer_file(group)
  at::Tensor value;                     // contiguous; all of a save on one device, or on the CPU
  std::optional<TensorPart> part = {};  // nullopt: all of it
};

struct TensorRequest {
  std::string name;
  at::Tensor destination;  // contiguous, on the CPU
  std::optional<TensorPart> part = {};
};

// What a tensor rank holds of a parameter.
TensorPart held_part(const spec::ParamSpec& spec, const spec::TensorShard& shard);
// What a data-parallel rank owns of that under ZeRO. `pieces`: those of this parameter (plan::zero_pieces); the values
// are contiguous in the rank's shard, from the first piece's shard_begin on.
TensorPart owned_part(const TensorPart& held, const std::vector<plan::ZeroPiece>& pieces);

// The part, or the whole tensor as one. CHECKs that the extents fill the tensor and are within the global one.
TensorPart part_of(const std::string& name, const at::Tensor& value, const std::optional<TensorPart>& part);

}  // namespace espalier::ckpt
