// The functions of the family, one file each.
#pragma once

#include "families/gpt/config.h"

namespace espalier::config {
class Resolving;
class UnusedOptions;
}  // namespace espalier::config

namespace espalier::families::internal {

// Also for families whose models are a GPT and more.
void add_gpt_options(OptionTable& table, GptSettings& settings, config::FamilyRows where);
void resolve_gpt(const config::Resolving& resolving, GptSettings& settings);
void find_unused_gpt(const config::RunConfig& run, const GptSettings& settings, config::UnusedOptions& unused);
// Of the objective.
void check_objective(const config::Resolving& resolving, const GptSettings& settings);
void check_attention_backend(const config::Resolving& resolving, const GptSettings& settings);
void find_unused_by_objective(const GptSettings& settings, config::UnusedOptions& unused);
void check_gpt_data(const data::RowRules& rules, int64_t sequence_length, const text::Tokenizer* tokenizer,
                    const data::DataPlan& plan, Problems& problems);
spec::ModelSpec gpt_model(const config::RunConfig& run);

}  // namespace espalier::families::internal
