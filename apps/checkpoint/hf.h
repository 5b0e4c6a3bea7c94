// espalier checkpoint import-hf | export-hf
#pragma once

#include <string>
#include <vector>

namespace espalier {

int import_hf_main(const std::vector<std::string>& arguments);
int export_hf_main(const std::vector<std::string>& arguments);

}  // namespace espalier
