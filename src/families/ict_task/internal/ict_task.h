// The functions of the family, one file each.
#pragma once

#include "families/ict_task/config.h"

namespace espalier::config {
class Resolving;
}

namespace espalier::families::internal {

void add_ict_task_options(OptionTable& table, config::FamilyConfig& config, config::FamilyRows where);
void resolve_ict_task(const config::Resolving& resolving, config::FamilyConfig& config);
void resolve_ict_task_epochs(config::RunConfig& run, const OptionTable& table, Problems& problems);

}  // namespace espalier::families::internal
