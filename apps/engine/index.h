// The engine's side of `espalier index`: what a retriever makes of texts.
#pragma once

#include <string>
#include <vector>

namespace espalier {

int index_embed(const std::vector<std::string>& arguments);
int index_search(const std::vector<std::string>& arguments);
int index_evaluate(const std::vector<std::string>& arguments);

}  // namespace espalier
