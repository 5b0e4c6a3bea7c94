// The functions of the family, one file each.
#pragma once

#include <string>

#include "families/t5/config.h"

namespace espalier::config {
class Resolving;
class UnusedOptions;
}  // namespace espalier::config

namespace espalier::families::internal {

void add_t5_options(OptionTable& table, config::FamilyConfig& config, config::FamilyRows where);
void resolve_t5(const config::Resolving& resolving, config::FamilyConfig& config);
void find_unused_t5(const config::RunConfig& run, config::UnusedOptions& unused);
// Layers of each pipeline stage: "list:3,3,6".
std::string t5_partition(const config::RunConfig& run);

}  // namespace espalier::families::internal
