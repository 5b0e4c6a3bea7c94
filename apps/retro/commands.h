// What the commands of `espalier retro` share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "base/options.h"
#include "config/run_config.h"
#include "families/retro/config.h"

namespace espalier {

int retro_build_main(const std::vector<std::string>& arguments);
int retro_chunks_main(const std::vector<std::string>& arguments);

// The flags of a run of `espalier train retro`, parsed and resolved into `config`, and those that the caller has added
// to the table with `add_rows`. False when help was printed.
bool read_retro_flags(const std::vector<std::string>& arguments, OptionTable& table, config::RunConfig& config,
                      const std::function<void(OptionTable&)>& add_rows, Problems& problems);

// The token that ends the run's documents. UserError where there is no tokenizer, or it has none.
int64_t end_of_document(const config::RunConfig& config);

}  // namespace espalier
