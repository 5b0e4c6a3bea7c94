#include "launch/peer_watch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/rendezvous_server.h"
#include "launch/secret.h"

namespace espalier::launch {
namespace {

using namespace std::chrono_literals;

class Watch : public testing::Test {
 protected:
  void SetUp() override { setenv(kSecretVariable, "the job's secret", 1); }
  void TearDown() override { unsetenv(kSecretVariable); }
  // A rank of the second round that hangs for 20 s and then ends well; its exit code.
  int exit_code_of_hanging_rank(const std::string& key, const std::string& value) {
    const pid_t rank = fork();
    if (rank == 0) {
      RankEnvironment place{.kind = LaunchKind::kEspalier, .world_size = 2, .master_port = server_.port()};
      place.launcher_store = true;
      place.restart_count = 1;
      const PeerWatch watch(place);
      std::this_thread::sleep_for(value == kRoundFailed && key == round_over_key(1) ? 20s : 300ms);
      _exit(0);
    }
    RendezvousClient client({"127.0.0.1", server_.port(), "the job's secret", 5s});
    client.set(key, value);
    int status = 0;
    waitpid(rank, &status, 0);
    return WEXITSTATUS(status);
  }
  RendezvousServer server_{{.address = "127.0.0.1", .secret = "the job's secret"}};
};

TEST_F(Watch, ARankEndsWhenTheLauncherSaysThatAnotherFailed) {
  EXPECT_EQ(exit_code_of_hanging_rank(round_over_key(1), kRoundFailed), 69);
}

TEST_F(Watch, TheEndOfAnotherRoundOrAGoodEndIsNoReason) {
  EXPECT_EQ(exit_code_of_hanging_rank(round_over_key(0), kRoundFailed), 0);
  EXPECT_EQ(exit_code_of_hanging_rank(round_over_key(1), kRoundDone), 0);
}

TEST_F(Watch, LeavesAtOnceWithoutALauncherOrWhenTheRankIsDone) {
  const auto start = std::chrono::steady_clock::now();
  { const PeerWatch none(RankEnvironment{}); }
  RankEnvironment place{.kind = LaunchKind::kEspalier, .world_size = 2, .master_port = server_.port()};
  place.launcher_store = true;
  { const PeerWatch watch(place); }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

}  // namespace
}  // namespace espalier::launch
