// What a biencoder has whatever it is trained on, and the functions of the family.
#pragma once

#include "families/ict/config.h"

namespace espalier::config {
class Resolving;
}

namespace espalier::families::internal {

// The rows of the towers and of what they are compared by.
void add_biencoder_rows(OptionTable& table, BiencoderSettings& settings, config::FamilyRows where);
// `whose`: "ICT", in messages. `contexts_of_sample`: how many a query brings, its own included.
void resolve_biencoder(const config::Resolving& resolving, BiencoderSettings& settings, const char* whose,
                       int64_t contexts_of_sample);
// Upstream's parser has them for every script; other commands read them.
void add_rows_of_indexing(OptionTable& table);

// With depths that have so many rows of a sample: one query and its contexts.
spec::ModelSpec biencoder_model_spec(const char* family, const BiencoderConfig& config, int64_t sequence_length,
                                     int64_t contexts_of_sample);

// config::Pretrained::names, for checkpoints of a BERT and of a biencoder.
std::vector<std::string> biencoder_pretrained_names(const std::string& parameter);

void add_ict_options(OptionTable& table, config::FamilyConfig& config, config::FamilyRows where);
void resolve_ict(const config::Resolving& resolving, config::FamilyConfig& config);

}  // namespace espalier::families::internal
