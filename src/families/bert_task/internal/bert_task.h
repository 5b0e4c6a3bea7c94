// The functions of the family, one file each.
#pragma once

#include "families/bert_task/config.h"

namespace espalier::config {
class Resolving;
}

namespace espalier::families::internal {

void add_bert_task_options(OptionTable& table, config::FamilyConfig& config, config::FamilyRows where);
void resolve_bert_task(const config::Resolving& resolving, config::FamilyConfig& config);
void resolve_task_epochs(config::RunConfig& run, const OptionTable& table, Problems& problems);

}  // namespace espalier::families::internal
