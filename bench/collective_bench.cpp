// How long an exchange between processes of this machine takes, by ranks and size.
//
//   collective_bench
//
// Prints microseconds of all-reduce and all-gather over Gloo, the median of many, one thread each.
#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

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

std::string measure(const dist::Grid& grid) {
  std::string lines;
  for (const int64_t elements : {1, 256, 4096, 65536, 1048576, 16777216}) {
    const int rounds = elements > 1000000 ? 3 : 50;
    const at::Tensor values = at::zeros({elements}), gathered = at::empty({elements * grid.world.size()});
    const double reduce = median_microseconds(grid.world, rounds, [&] { grid.world.all_reduce(values); });
    const double gather =
        median_microseconds(grid.world, rounds, [&] { grid.world.all_gather_into(gathered, values); });
    char line[128];
    std::snprintf(line, sizeof line, "%6lld%12lld%14.0f%14.0f\n", static_cast<long long>(grid.world.size()),
                  static_cast<long long>(4 * elements), reduce, gather);
    lines += line;
  }
  return lines;
}

}  // namespace
}  // namespace espalier

int main() {
  std::printf("%6s%12s%14s%14s\n", "ranks", "bytes", "all-reduce us", "all-gather us");
  for (const int64_t ranks : {2, 4, 8}) {
    std::printf("%s", espalier::dist::run_ranks({.data = ranks}, espalier::measure).at(0).c_str());
    std::fflush(stdout);
  }
}
