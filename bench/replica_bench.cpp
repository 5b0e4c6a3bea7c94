// What a replica check costs compared with a training step: forked ranks that train on this machine's cores, one thread
// each.
//
//   replica_bench LAYOUT STEPS <flags of training>     prints one JSON object
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "config/run_config.h"
#include "dist/local_ranks.h"
#include "families/gpt/config.h"
#include "plan/layout.h"
#include "train/replica_check.h"

namespace {

using namespace espalier;

constexpr int kInterval = 10;  // --check-replicas
constexpr int kNumWarmUps = 1;

template <class Work>
double seconds_of(const dist::Grid& grid, const Work& work) {
  grid.world.barrier();  // the wait for a slower rank belongs to the step
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::string measure(const dist::Grid& grid, const std::vector<std::string>& words, int num_steps) {
  set_log_level(LogLevel::kWarning);
  config::RunConfig config;
  config.num_ranks = grid.shape.num_ranks();
  OptionTable table("espalier train gpt", "");
  Problems problems;
  config::read_run(families::gpt_family(), words, config, table, problems);
  problems.raise();
  train::Job job(config, table, grid);
  std::vector<double> steps, checks;
  size_t bytes = 0;
  for (int step = 0; step < kNumWarmUps + num_steps; ++step) {
    const double step_seconds = seconds_of(grid, [&] { job.trainer().step(); });
    const double check_seconds = seconds_of(grid, [&] {
      const std::vector<dist::Copy> copies = train::replicated_state(job);
      if (!dist::find_differences(copies, grid).empty()) throw UserError("ranks differ");
    });
    if (step < kNumWarmUps) continue;
    steps.push_back(step_seconds);
    checks.push_back(check_seconds);
  }
  for (const dist::Copy& copy : train::replicated_state(job)) bytes += copy.values.nbytes();
  const double step = median(steps), check = median(checks);
  return format_printf("{\"mib\": %.0f, \"step_seconds\": %.4f, \"check_seconds\": %.4f, \"share_at_10\": %.6f}",
                       static_cast<double>(bytes) / (1 << 20), step, check, check / (kInterval * step));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return std::fprintf(stderr, "usage: replica_bench LAYOUT STEPS FLAGS...\n"), 2;
  try {
    const plan::Layout layout = plan::parse_layout(argv[1]);
    std::vector<std::string> words(argv + 3, argv + argc);
    for (const std::string& word : plan::layout_flags(layout, 1)) words.push_back(word);
    const int num_steps = std::atoi(argv[2]);
    const auto results =
        dist::run_ranks(layout.grid, [&](const dist::Grid& grid) { return measure(grid, words, num_steps); },
                        {.timeout_seconds = 1800, .num_threads = 1});
    std::printf("%s\n", results[0].c_str());
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "replica_bench: %s\n", error.what()), 1;
  }
  return 0;
}
