// Small complete runs in this process.
#pragma once

#include "dist/grid.h"
#include "tests/e2e/run_files.h"

namespace espalier::test {

// Parses, checks and runs in this process, as one rank of the grid. Throws what the run throws.
void train(const Words& words, const dist::Grid& grid = dist::single_process());

}  // namespace espalier::test
