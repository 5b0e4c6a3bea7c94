// Rows and checks of the options that all families of transformer layers have.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/options.h"
#include "config/resolving.h"
#include "spec/layers.h"

namespace espalier::families {

// FamilyRows::kRegularization and kInitialization. The variables outlive the table.
void add_dropout_rows(OptionTable& table, double& attention_dropout, double& hidden_dropout);
void add_initialization_row(OptionTable& table, double& init_method_std);

// Rows of Megatron's decoders that a model ("BERT") refuses which has positions of its own kind, sees whole samples,
// and has a key for each query head.
void refuse_decoder_rows(OptionTable& table, const std::string& model);

// The words of --activation.
const std::vector<std::pair<std::string, spec::Activation>>& activation_names();

// Hidden size / heads unless `kv_channels` is given; what does not divide is a problem.
void resolve_head_size(const config::Resolving& resolving, int64_t hidden_size, int64_t num_heads,
                       int64_t& kv_channels);
void check_dropout(const config::Resolving& resolving, double attention_dropout, double hidden_dropout);

// The heads and the MLP's width over the tensor ranks, the heads of one of those over the context ranks; each query
// head has a key and a value head of its own.
void check_tensor_division(const config::Resolving& resolving, int64_t num_heads, int64_t ffn_hidden_size);
// Options of samples that run over the ends of documents, for a model ("BERT") whose samples do not.
void check_no_document_options(const config::Resolving& resolving, const char* whose);

}  // namespace espalier::families
