// The functions of the family, one file each.
#pragma once

#include "families/retro/config.h"

namespace espalier::config {
class Resolving;
class UnusedOptions;
}  // namespace espalier::config

namespace espalier::families::internal {

void add_retro_options(OptionTable& table, config::FamilyConfig& config, config::FamilyRows where);
void resolve_retro(const config::Resolving& resolving, config::FamilyConfig& config);
void find_unused_retro(const config::RunConfig& run, config::UnusedOptions& unused);
void check_retro_data(const config::RunConfig& run, const text::Tokenizer* tokenizer, const data::DataPlan& plan,
                      Problems& problems);

}  // namespace espalier::families::internal
