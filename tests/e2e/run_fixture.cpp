#include "tests/e2e/run_fixture.h"

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "plan/run_config.h"
#include "train/run.h"

namespace espalier::test {

void train(const Words& words, const dist::Grid& grid) {
  plan::RunConfig config;
  if (grid.shape.num_ranks() > 1) config.num_ranks = grid.shape.num_ranks();
  OptionTable table("espalier train gpt", "");
  Problems problems;
  plan::read_gpt_options(words, config, table, problems);
  problems.raise();
  set_log_level(LogLevel::kQuiet);
  train::run(config, table, join(words, " "), grid);
}

}  // namespace espalier::test
