// The heads of a query/key/value projection, and where each is in its columns.
//
// Query heads come in groups that share one key head and one value head (Ainslie et al., 2023): as many groups as
// query heads is multi-head attention, one group is multi-query attention. The columns are Megatron's. Of one sequence
// they are fused: group after group, the group's query heads | its key head | its value head, head_size each. Between
// two sequences the queries have a projection of their own, group after group, and keys and values one together, group
// after group the key head | the value head.
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
  int64_t query_columns(int64_t head_size) const { return queries * head_size; }
  int64_t key_value_columns(int64_t head_size) const { return groups * 2 * head_size; }
};

inline void check_heads(Heads heads) {
  ESPALIER_CHECK(heads.groups > 0 && heads.queries > 0 && heads.queries % heads.groups == 0, heads.queries,
                 " heads in ", heads.groups, " groups");
}

}  // namespace espalier::kernels
