// Ranks as threads around one store in memory.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/error.h"
#include "dist/rendezvous.h"

namespace espalier::dist {
namespace {
namespace assembly_test {

// How the assembly ended for one rank: "here", or the message with which it was left.
std::string outcome_of(c10d::Store& store, const Assembly& assembly) {
  try {
    assemble(store, assembly);
    return "here";
  } catch (const StoppedBeforeStart& stopped) {
    return stopped.what();
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kLostPeer);
    return error.what();
  }
}

std::vector<std::string> outcomes(c10d::Store& store, const std::vector<Assembly>& ranks) {
  std::vector<std::string> ends(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) threads.emplace_back([&, i] { ends[i] = outcome_of(store, ranks[i]); });
  for (std::thread& thread : threads) thread.join();
  return ends;
}

TEST(Assembly, EndsWhenAllRanksAreThere) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  EXPECT_EQ(outcomes(*store, {{0, 3}, {1, 3}, {2, 3}}), (std::vector<std::string>{"here", "here", "here"}));
}

TEST(Assembly, NamesThoseThatDoNotCome) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto brief = std::chrono::milliseconds(300);
  for (const std::string& end : outcomes(*store, {{0, 5, brief}, {2, 5, brief}}))
    EXPECT_EQ(end.find("ranks 1, 3, 4 of 5 did not come within"), 0u) << end;
}

TEST(Assembly, ARankThatIsAskedToStopEndsItForAll) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::atomic<int> looks{0};
  Assembly stopped{1, 3};
  stopped.stopped = [&] { return ++looks > 3; };
  const std::vector<std::string> ends = outcomes(*store, {{0, 3}, stopped});
  EXPECT_EQ(ends, (std::vector<std::string>{"rank 1 was asked to stop", "rank 1 was asked to stop"}));
}

// Once all have arrived a request to stop is no business of the assembly: everybody continues, and stops together
// later.
TEST(Assembly, AllGoOnOrNoneDoes) {
  for (int round = 0; round < 50; ++round) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    std::vector<Assembly> ranks = {{0, 3}, {1, 3}, {2, 3}};
    std::atomic<int> looks{0};
    for (Assembly& rank : ranks) rank.stopped = [&] { return ++looks > round; };
    const std::vector<std::string> ends = outcomes(*store, ranks);
    const size_t here = static_cast<size_t>(std::count(ends.begin(), ends.end(), "here"));
    EXPECT_TRUE(here == 0 || here == 3) << ends[0] << "; " << ends[1] << "; " << ends[2];
  }
}

}  // namespace assembly_test
}  // namespace
}  // namespace espalier::dist
