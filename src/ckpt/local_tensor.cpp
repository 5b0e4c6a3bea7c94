#include "ckpt/local_tensor.h"

#include <ATen/ATen.h>

#include "base/error.h"

namespace espalier::ckpt {

TensorPart held_part(const spec::ParamSpec& spec, const spec::TensorShard& shard) {
  TensorPart part{.global_shape = spec.shape, .extents = spec::local_extents(spec, shard)};
  std::erase_if(part.extents, [](const spec::Extent& extent) { return extent.count == 0; });
  return part;
}

TensorPart owned_part(const TensorPart& held, const std::vector<plan::ZeroPiece>& pieces) {
  TensorPart owned{.global_shape = held.global_shape, .extents = {}};
  int64_t local = 0;
  for (const plan::ZeroPiece& piece : pieces) {
    ESPALIER_CHECK(piece.param == pieces.front().param && piece.shard_begin == pieces.front().shard_begin + local,
                   "piece at ", piece.shard_begin, " of a shard, expected at ", pieces.front().shard_begin + local);
    for (spec::Extent extent : spec::clip_to_local(held.extents, piece.param_begin, piece.param_begin + piece.count)) {
      extent.local_begin += local;
      owned.extents.push_back(extent);
    }
    local += piece.count;
  }
  return owned;
}

TensorPart part_of(const std::string& name, const at::Tensor& value, const std::optional<TensorPart>& part) {
  ESPALIER_CHECK(value.is_contiguous(), name);
  if (!part) {
    TensorPart whole{.global_shape = value.sizes().vec(), .extents = {}};
    if (value.numel() > 0) whole.extents.push_back({0, 0, value.numel()});
    return whole;
  }
  int64_t num_elements = 1, local = 0;
  for (const int64_t size : part->global_shape) num_elements *= size;
  for (const spec::Extent& extent : part->extents) {
    ESPALIER_CHECK(extent.local_begin == local && extent.count > 0 && extent.global_begin >= 0 &&
                       extent.global_begin + extent.count <= num_elements,
                   name, ": extent of ", extent.count, " elements from ", extent.global_begin, " of ", num_elements,
                   " at ", extent.local_begin, ", expected at ", local);
    local += extent.count;
  }
  ESPALIER_CHECK(local == value.numel(), name, ": extents of ", local, " elements for ", value.numel());
  return *part;
}

}  // namespace espalier::ckpt
