// Small complete runs in this process.
#pragma once

#include "base/options.h"
#include "config/run_config.h"
#include "dist/grid.h"
#include "families/gpt/config.h"
#include "plan/activation_memory.h"
#include "tests/e2e/run_files.h"

namespace espalier::test {

// A command line as training takes it, for one rank of the grid.
struct ParsedRun {
  explicit ParsedRun(const Words& words, const dist::Grid& grid = dist::single_process(),
                     const config::Family& family = families::gpt_family());
  config::RunConfig config;
  OptionTable table{"espalier train gpt", ""};
};

// How this machine's products run, as plans of memory want to know it.
plan::ProductKind products_here(plan::Precision precision);

// Parses, checks and runs in this process, as one rank of the grid. Throws what the run throws.
void train(const Words& words, const dist::Grid& grid = dist::single_process(),
           const config::Family& family = families::gpt_family());

}  // namespace espalier::test
