// The functions of the family, one file each.
#pragma once

#include "families/bert/config.h"

namespace espalier::config {
class Resolving;
class UnusedOptions;
}  // namespace espalier::config

namespace espalier::families::internal {

void add_bert_options(OptionTable& table, config::FamilyConfig& config, config::FamilyRows where);
void resolve_bert(const config::Resolving& resolving, config::FamilyConfig& config);
void find_unused_bert(const config::RunConfig& run, config::UnusedOptions& unused);

}  // namespace espalier::families::internal
