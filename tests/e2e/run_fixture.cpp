#include "tests/e2e/run_fixture.h"

#include "base/cpu_isa.h"
#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "kernels/wide_product.h"
#include "train/run.h"

namespace espalier::test {
namespace {

// As the engine does before its first product: runs in this process are compared with those of the program.
[[maybe_unused]] const bool kProductsRepeat = (kernels::make_library_products_repeatable(), true);

}  // namespace

ParsedRun::ParsedRun(const Words& words, const dist::Grid& grid, const config::Family& family) {
  if (grid.shape.num_ranks() > 1) config.num_ranks = grid.shape.num_ranks();
  Problems problems;
  config::read_run(family, words, config, table, problems);
  problems.raise();
}

plan::ProductKind products_here(plan::Precision precision) { return plan::products_of(cpu_isa(), precision); }

void train(const Words& words, const dist::Grid& grid, const config::Family& family) {
  ParsedRun run(words, grid, family);
  set_log_level(LogLevel::kQuiet);
  train::run(run.config, run.table, join(words, " "), grid);
}

}  // namespace espalier::test
