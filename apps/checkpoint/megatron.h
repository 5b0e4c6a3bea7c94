#pragma once

#include <string>
#include <vector>

namespace espalier {

// espalier checkpoint import-megatron
int import_megatron_main(const std::vector<std::string>& arguments);

// espalier checkpoint export-megatron
int export_megatron_main(const std::vector<std::string>& arguments);

}  // namespace espalier
