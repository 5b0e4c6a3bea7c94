// What the commands of `espalier index` share.
#pragma once

#include <string>
#include <vector>

#include "apps/commands.h"

namespace espalier {

int index_build_main(const std::vector<std::string>& arguments);
int index_embed_main(const std::vector<std::string>& arguments);
int index_evaluate_main(const std::vector<std::string>& arguments);
int index_search_main(const std::vector<std::string>& arguments);
int index_train_main(const std::vector<std::string>& arguments);

}  // namespace espalier
