// The subcommands of `espalier data`.
#pragma once

#include <string>
#include <vector>

namespace espalier {

int data_inspect_main(const std::vector<std::string>& arguments);
int data_check_main(const std::vector<std::string>& arguments);
int data_merge_main(const std::vector<std::string>& arguments);
int data_blend_main(const std::vector<std::string>& arguments);
int data_sample_main(const std::vector<std::string>& arguments);

}  // namespace espalier
