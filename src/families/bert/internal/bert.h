// The functions of the family, one file each.
#pragma once

#include "families/bert/config.h"

namespace espalier::config {
class Resolving;
class UnusedOptions;
}  // namespace espalier::config

namespace espalier::families::internal {

// What BERT has in common with the tasks that it is finetuned for: all rows but those of its samples and heads.
void add_bert_model_rows(OptionTable& table, BertSettings& settings, config::FamilyRows where);
void resolve_bert_model(const config::Resolving& resolving, BertSettings& settings);
// Its embeddings at depth 0, its layers, and the norm at the last depth. A model that predicts words uses
// their embeddings there again.
void add_bert_encoder_params(ParamList& params, const BertConfig& config, bool predicts_words);
spec::GhostProgram bert_embedding_ghost(const BertConfig& model);
std::vector<spec::Depth> bert_encoder_depths(const BertConfig& model, const LayerTokens& sizes);

void add_bert_options(OptionTable& table, config::FamilyConfig& config, config::FamilyRows where);
void resolve_bert(const config::Resolving& resolving, config::FamilyConfig& config);
void find_unused_bert(const config::RunConfig& run, config::UnusedOptions& unused);

}  // namespace espalier::families::internal
