// Rows without effect and refused ones, as lists.
#pragma once

#include <initializer_list>
#include <string>

#include "base/options.h"

namespace espalier::config::internal {

using Takes = OptionTable::Takes;
constexpr Takes kFlag = Takes::kFlag, kOne = Takes::kOne, kList = Takes::kList;

// Reasons that several files give.
inline constexpr const char* kBuckets = "gradients are reduced in buckets while the backward pass runs";
inline constexpr const char* kFused = "kernels are always fused, and equal the unfused form";
// Resolver::resolve_fp8 refuses these beside a format.
inline constexpr const char* kNotWithFp8 = "it changes layers of fp8, and is refused beside --fp8-format";
inline constexpr const char* kOnlyExperts = "only mixtures of experts read it";
inline constexpr const char* kOnlyMamba = "only Mamba layers read it";
inline constexpr const char* kOnlyT5 = "only T5 and masked models read it";
inline constexpr const char* kOnlyWeightShards =
    "only weights that tensor ranks divide once more read it, which are refused";
inline constexpr const char* kOtherOptimizer = "only an optimizer reads it that is refused";

struct InertRow {
  const char* name;
  Takes takes;
  const char* reason;  // why nothing changes, or what to use instead
};

// Rows that a family has added are its own.
inline bool is_new(const OptionTable& table, const std::string& name) { return table.find(name) == nullptr; }

inline void no_effect(OptionTable& table, std::initializer_list<InertRow> rows) {
  for (const InertRow& row : rows)
    if (is_new(table, row.name)) table.add_without_effect(row.name, row.takes, row.reason);
}

inline void refused(OptionTable& table, std::initializer_list<InertRow> rows) {
  for (const InertRow& row : rows)
    if (is_new(table, row.name)) table.add_refused(row.name, row.takes, row.reason);
}

// Many of one kind.
using Names = std::initializer_list<const char*>;

inline void no_effect(OptionTable& table, Takes takes, const char* reason, Names names) {
  for (const char* name : names)
    if (is_new(table, name)) table.add_without_effect(name, takes, reason);
}

inline void refused(OptionTable& table, Takes takes, const char* use_instead, Names names) {
  for (const char* name : names)
    if (is_new(table, name)) table.add_refused(name, takes, use_instead);
}

// --no-NAME, and --disable-NAME.
inline void no_effect_negatives(OptionTable& table, const char* reason, Names names) {
  for (const std::string name : names)
    table.add_without_effect("--no-" + name, kFlag, reason).alias("--disable-" + name);
}

inline void refused_negatives(OptionTable& table, const char* use_instead, Names names) {
  for (const std::string name : names) table.add_refused("--no-" + name, kFlag, use_instead).alias("--disable-" + name);
}

// --NAME, and --no-NAME.
inline void no_effect_either(OptionTable& table, const char* reason, Names names) {
  for (const std::string name : names) table.add_without_effect("--" + name, kFlag, reason).alias("--no-" + name);
}

}  // namespace espalier::config::internal
