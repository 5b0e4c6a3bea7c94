// What the commands of `espalier curate` share.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "curate/run.h"

namespace espalier {

// Records that are not documents, and bytes that are not UTF-8.
void warn_of_input(const curate::InputTally& input);

int curate_run_main(const std::vector<std::string>& arguments);
int curate_step_main(const std::vector<std::string>& arguments);
int curate_why_main(const std::vector<std::string>& arguments);
int curate_forget_main(const std::vector<std::string>& arguments);
int curate_index_main(const std::vector<std::string>& arguments);
int curate_find_main(const std::vector<std::string>& arguments);

}  // namespace espalier
