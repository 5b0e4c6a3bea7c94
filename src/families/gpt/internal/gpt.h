// The functions of the family, one file each.
#pragma once

#include "families/gpt/config.h"

namespace espalier::config {
class Resolving;
class UnusedOptions;
}  // namespace espalier::config

namespace espalier::families::internal {

void add_gpt_options(OptionTable& table, config::FamilyConfig& config, config::FamilyRows where);
void resolve_gpt(const config::Resolving& resolving, config::FamilyConfig& config);
void find_unused_gpt(const config::RunConfig& run, config::UnusedOptions& unused);
spec::ModelSpec gpt_model(const config::RunConfig& run);

}  // namespace espalier::families::internal
