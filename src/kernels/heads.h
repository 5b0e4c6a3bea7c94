// The heads of a fused query/key/value projection, and where each lies in its columns.
//
// Query heads come in groups that share one key head and one value head (Ainslie et al., 2023): as many groups as
// query heads is multi-head attention, one group is multi-query attention. The columns are, group after group, the
// group's query heads | its key head | its value head, head_size each (Megatron's layout).
#pragma once

#include <cstdint>

#include "base/error.h"

namespace espalier::kernels {

struct Heads {
  int64_t queries = 0, groups = 0;  // of this rank; groups divides queries

  int64_t per_group() const { return queries / groups; }  // query heads
  // Of a group: its query heads, its key head, its value head.
  int64_t parts_of_group() const { return per_group() + 2; }
  int64_t columns(int64_t head_size) const { return groups * parts_of_group() * head_size; }
};

inline void check_heads(Heads heads) {
  ESPALIER_CHECK(heads.groups > 0 && heads.queries > 0 && heads.queries % heads.groups == 0, heads.queries,
                 " heads in ", heads.groups, " groups");
}

}  // namespace espalier::kernels
