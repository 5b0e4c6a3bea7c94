// The subcommands of `espalier data`.
#pragma once

#include <string>
#include <vector>

#include "apps/commands.h"

namespace espalier {

int data_inspect_main(const std::vector<std::string>& arguments);
int data_check_main(const std::vector<std::string>& arguments);
int data_merge_main(const std::vector<std::string>& arguments);
int data_blend_main(const std::vector<std::string>& arguments);
int data_who_main(const std::vector<std::string>& arguments);
int data_where_main(const std::vector<std::string>& arguments);
int data_sample_main(const std::vector<std::string>& arguments);

// Kinds of models whose samples `espalier data sample` shows when the first word names them; without one, GPT's.
const std::vector<Command>& sample_families();

}  // namespace espalier
