// The longest of the subcommands of `espalier tokenizer`.
#pragma once

#include <string>
#include <vector>

namespace espalier {

int tokenizer_train_main(const std::vector<std::string>& arguments);

}  // namespace espalier
