// Whether the sources of a recipe hold what they are to hold, before anything is made of them.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "curate/input.h"

namespace espalier::curate {

// Reads each source up to its first document: one without any is a problem, with what its records lack, unless the
// recipe says `may_be_empty = true` of it.
void check_sources(const std::vector<InputSource>& sources, Problems& problems);

}  // namespace espalier::curate
