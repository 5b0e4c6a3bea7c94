// The part of the plugin's table that trains, fills and searches indexes of Faiss's index strings.
#pragma once

#include "retrieval/search_table.h"

namespace espalier::retrieval {

void add_trained(SearchTable& table);

}  // namespace espalier::retrieval
