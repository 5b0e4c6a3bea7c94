// Where the parameters of one process lie in its flat buffers (tensor/param_set.h): in the order of the list, each
// beginning at a multiple of kFlatAlignment elements. The gaps between them stay zero.
#pragma once

#include <cstdint>
#include <vector>

#include "spec/shard.h"

namespace espalier::spec {

inline constexpr int64_t kFlatAlignment = 32;  // 64 bytes of bf16, 128 of fp32

// `count` rounded up to a multiple of kFlatAlignment.
int64_t round_up_flat(int64_t count);

struct FlatLayout {
  std::vector<int64_t> offsets, counts;  // of each parameter, in elements
  int64_t size = 0;                      // of the whole buffer, gaps included
};

FlatLayout flat_layout(const std::vector<ParamSpec>& specs, const TensorShard& shard);

}  // namespace espalier::spec
