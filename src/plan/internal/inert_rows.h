// Rows without effect and refused ones, as lists.
#pragma once

#include <initializer_list>

#include "base/options.h"

namespace espalier::plan::internal {

using Takes = OptionTable::Takes;
constexpr Takes kFlag = Takes::kFlag, kOne = Takes::kOne, kList = Takes::kList;

struct InertRow {
  const char* name;
  Takes takes;
  const char* reason;  // why nothing changes, or what to use instead
};

inline void no_effect(OptionTable& table, std::initializer_list<InertRow> rows) {
  for (const InertRow& row : rows) table.add_without_effect(row.name, row.takes, row.reason);
}

inline void refused(OptionTable& table, std::initializer_list<InertRow> rows) {
  for (const InertRow& row : rows) table.add_refused(row.name, row.takes, row.reason);
}

}  // namespace espalier::plan::internal
