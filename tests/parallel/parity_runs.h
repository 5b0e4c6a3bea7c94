// A run in a layout, on forked ranks, and the comparison with that of one process.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "base/format.h"
#include "base/log.h"
#include "config/parity_request.h"
#include "dist/local_ranks.h"
#include "tests/e2e/run_fixture.h"
#include "train/parity.h"

namespace espalier::test {

inline constexpr int64_t kParitySteps = 4;

// The first steps of the run that the flags describe.
inline train::ParityRun parity_run(const config::Family& family, const Words& flags, const std::string& layout_text,
                                   const dist::LocalRanksOptions& options = {}) {
  const config::ParityRequest request{.family = &family,
                                      .layouts = {},
                                      .num_steps = kParitySteps,
                                      .json = false,
                                      .arguments = flags + Words{"--layouts", layout_text}};
  config::RunConfig config;
  OptionTable table(concat("espalier parity ", family.name), "");
  Problems problems;
  const plan::Layout layout = config::read_parity_layout(request, layout_text, config, table, problems);
  problems.raise();
  const auto texts = dist::run_ranks(
      layout.grid,
      [&](const dist::Grid& grid) {
        set_log_level(LogLevel::kQuiet);
        return train::to_text(train::run_for_parity(config, table, kParitySteps, grid));
      },
      options);
  return train::parity_run_from_text(texts[0]);
}

// The bounds of docs/numerics.md in fp32, over these few steps.
inline void expect_same_training(const std::string& layout, const train::ParityRun& run, const train::ParityRun& one) {
  SCOPED_TRACE(layout);
  const train::ParityComparison found = train::compare(run, one);
  std::printf("%-22s first loss %.1e, first norm %.1e, losses %.1e, weights' norm %.1e\n", layout.c_str(),
              found.first_loss, found.first_norm, found.largest_loss, found.params_norm);
  EXPECT_TRUE(found.weights_equal) << "the first weights differ";
  EXPECT_TRUE(found.samples_equal);
  EXPECT_EQ(found.num_replica_differences, 0u);
  EXPECT_LE(found.first_loss, 1e-6);
  EXPECT_LE(found.first_norm, 1e-5);
  EXPECT_LE(found.largest_loss, 1e-5);
  EXPECT_LE(found.params_norm, 1e-6);
}

}  // namespace espalier::test
