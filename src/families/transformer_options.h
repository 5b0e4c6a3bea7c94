// Rows and checks of the options that all families of transformer layers have.
#pragma once

#include <cstdint>

#include "base/options.h"
#include "config/resolving.h"

namespace espalier::families {

// FamilyRows::kRegularization and kInitialization. The variables outlive the table.
void add_dropout_rows(OptionTable& table, double& attention_dropout, double& hidden_dropout);
void add_initialization_row(OptionTable& table, double& init_method_std);

// Hidden size / heads unless `kv_channels` is given; what does not divide is a problem.
void resolve_head_size(const config::Resolving& resolving, int64_t hidden_size, int64_t num_heads,
                       int64_t& kv_channels);
void check_dropout(const config::Resolving& resolving, double attention_dropout, double hidden_dropout);

}  // namespace espalier::families
