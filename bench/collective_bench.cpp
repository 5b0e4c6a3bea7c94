// How long an exchange between processes of this machine takes, by ranks and size.
//
//   collective_bench
//
// Prints microseconds of all-reduce, reduce-scatter and all-gather, the median of many, one thread each: of ranks that
// read each other's memory, that exchange through shared memory, and over Gloo.
#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include "dist/local_ranks.h"

namespace espalier {
namespace {

using Clock = std::chrono::steady_clock;

template <class Function>
double median_microseconds(const dist::Group& group, int rounds, const Function& function) {
  std::vector<double> times;
  for (int round = 0; round < rounds + 2; ++round) {
    group.barrier();
    const Clock::time_point start = Clock::now();
    function();
    if (round >= 2) times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

// `elements`: of what is reduced, and of each rank's part that is gathered.
std::string measure(const dist::Grid& grid) {
  std::string lines;
  for (const int64_t elements : {8, 256, 4096, 16384, 65536, 1048576, 16777216}) {
    const int rounds = elements > 1000000 ? 5 : 50;
    const at::Tensor values = at::zeros({elements}), gathered = at::zeros({elements * grid.world.size()}),
                     part = at::zeros({elements / grid.world.size()});
    const double reduce = median_microseconds(grid.world, rounds, [&] { grid.world.all_reduce(values); });
    const double gather =
        median_microseconds(grid.world, rounds, [&] { grid.world.all_gather_into(gathered, values); });
    const double scatter =
        median_microseconds(grid.world, rounds, [&] { grid.world.reduce_scatter_into(part, values); });
    char line[128];
    std::snprintf(line, sizeof line, "%6lld%12lld%14.0f%18.0f%14.0f\n", static_cast<long long>(grid.world.size()),
                  static_cast<long long>(4 * elements), reduce, scatter, gather);
    lines += line;
  }
  return lines;
}

}  // namespace
}  // namespace espalier

int main() {
  using espalier::dist::LocalRanksOptions;
  const std::pair<const char*, LocalRanksOptions> ways[] = {
      {"memory of others read", {}}, {"shared memory", {.reads_directly = false}}, {"Gloo", {.shared_memory = false}}};
  for (const auto& [name, options] : ways) {
    std::printf("%s\n%6s%12s%14s%18s%14s\n", name, "ranks", "bytes", "all-reduce us", "reduce-scatter us",
                "all-gather us");
    for (const int64_t ranks : {2, 4, 8}) {
      std::printf("%s", espalier::dist::run_ranks({.data = ranks}, espalier::measure, options).at(0).c_str());
      std::fflush(stdout);
    }
  }
}
