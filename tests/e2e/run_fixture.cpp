#include "tests/e2e/run_fixture.h"

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "kernels/dispatch.h"
#include "train/run.h"

namespace espalier::test {

ParsedRun::ParsedRun(const Words& words, const dist::Grid& grid, const config::Family& family) {
  if (grid.shape.num_ranks() > 1) config.num_ranks = grid.shape.num_ranks();
  Problems problems;
  config::read_run(family, words, config, table, problems);
  problems.raise();
}

plan::ProductKind products_here(plan::Precision precision) {
  using kernels::CpuIsa;
  const CpuIsa isa = kernels::cpu_isa();
  switch (precision) {
    case plan::Precision::kFp32: return plan::ProductKind::kDirect;
    case plan::Precision::kFp16: return isa >= CpuIsa::kAmx ? plan::ProductKind::kDirect : plan::ProductKind::kWidened;
    case plan::Precision::kBf16:
      return isa >= CpuIsa::kAmx          ? plan::ProductKind::kPacked
             : isa == CpuIsa::kAvx512Bf16 ? plan::ProductKind::kPackedKeepingLogits
                                          : plan::ProductKind::kWidened;
  }
  return plan::ProductKind::kDirect;
}

void train(const Words& words, const dist::Grid& grid, const config::Family& family) {
  ParsedRun run(words, grid, family);
  set_log_level(LogLevel::kQuiet);
  train::run(run.config, run.table, join(words, " "), grid);
}

}  // namespace espalier::test
