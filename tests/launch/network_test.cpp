// Launchers and ranks whose connections to the rendezvous store are slow, or cut in the middle of training.
#include <gtest/gtest.h>

#include <future>
#include <random>

#include "tests/launch/launch_fixture.h"
#include "tests/support/tcp_proxy.h"

namespace espalier::test {
namespace network_test {

class Network : public testing::Test {
 protected:
  void SetUp() override { write_token_files(folder_ / "data", 300, 5); }
  std::string training(const std::string& save, const Words& more = {}) const {
    return "train gpt" +
           command_line(tiny_run(folder_ / "data") +
                        Words{"--save", folder_ / save, "--save-interval", "1000", "--num-threads", "1"} + more);
  }
  // The launcher of one machine of two.
  static std::string machine(int number, int port, const std::string& command) {
    return concat("espalier launch --nnodes 2 --node-rank ", number,
                  " --nproc-per-node 1 --master-addr 127.0.0.1 --master-port ", port, " ", command);
  }
  TemporaryFolder folder_, other_;
  const int port_ = 20000 + static_cast<int>(std::random_device{}() % 9000);
};

TEST_F(Network, ThatIsSlowChangesNoBit) {
  const Shell one = shell(folder_, "espalier launch --nproc-per-node 2 " + training("one", {"--zero-stage", "0"}));
  ASSERT_EQ(one.exit_code, 0) << one.errors;
  TcpProxy proxy(port_, std::chrono::milliseconds(20));
  const Shell two = shell(
      folder_, machine(1, proxy.port(), training("two")) + " & " + machine(0, port_, training("two")) + " && wait $!");
  ASSERT_EQ(two.exit_code, 0) << two.errors;
  EXPECT_GE(proxy.num_connections(), 2) << "the launcher's and its rank's";
  EXPECT_EQ(step_records(folder_ / "two"), step_records(folder_ / "one"));
}

// To the rendezvous store: the proof that opens a connection holds for that one alone.
TEST_F(Network, ConnectionsThatComeTwiceChangeNoBit) {
  const Shell one = shell(folder_, "espalier launch --nproc-per-node 2 " + training("one", {"--zero-stage", "0"}));
  ASSERT_EQ(one.exit_code, 0) << one.errors;
  TcpProxy proxy({.target_port = port_, .doubles_connections = true});
  const Shell two = shell(
      folder_, machine(1, proxy.port(), training("two")) + " & " + machine(0, port_, training("two")) + " && wait $!");
  ASSERT_EQ(two.exit_code, 0) << two.errors;
  EXPECT_GE(proxy.num_connections(), 2);
  EXPECT_EQ(step_records(folder_ / "two"), step_records(folder_ / "one"));
}

// Each message carries a number and a tag: one that comes again ends the connection, and the run says so. Before the
// launchers have met, the first would wait for another in the second's place.
TEST_F(Network, MessagesThatComeTwiceAreNoticed) {
  const Words endless = {"--train-samples", "8000000", "--lr-decay-samples", "8000000"};
  TcpProxy proxy(port_, std::chrono::milliseconds(0));
  auto second =
      std::async(std::launch::async, [&] { return shell(other_, machine(1, proxy.port(), training("run", endless))); });
  auto first =
      std::async(std::launch::async, [&] { return shell(folder_, machine(0, port_, training("run", endless))); });
  EXPECT_TRUE(wait_until(60, [&] { return num_records(folder_ / "run") > 3; }));
  proxy.double_data();
  const Shell there = second.get(), here = first.get();
  EXPECT_GT(proxy.num_doubled(), 0);
  EXPECT_NE(there.exit_code, 0);
  EXPECT_NE(there.errors.find("lost the rendezvous store"), std::string::npos) << there.errors;
  EXPECT_NE(here.exit_code, 0) << here.errors;
}

// Both machines end, and say that the other is gone, long before any exchange would time out.
TEST_F(Network, ThatIsCutEndsBothMachines) {
  const Words endless = {"--train-samples", "8000000", "--lr-decay-samples", "8000000"};
  TcpProxy proxy(port_, std::chrono::milliseconds(0));
  auto second =
      std::async(std::launch::async, [&] { return shell(other_, machine(1, proxy.port(), training("run", endless))); });
  auto first =
      std::async(std::launch::async, [&] { return shell(folder_, machine(0, port_, training("run", endless))); });
  EXPECT_TRUE(wait_until(60, [&] { return num_records(folder_ / "run") > 3; }));
  proxy.cut();
  const Shell there = second.get(), here = first.get();
  EXPECT_EQ(there.exit_code, 69) << there.errors;
  EXPECT_NE(there.errors.find("lost the rendezvous store"), std::string::npos) << there.errors;
  EXPECT_NE(here.exit_code, 0) << here.errors;
}

// Connections between the ranks themselves, over Gloo: each goes through a proxy.
class GlooNetwork : public Network {
 protected:
  // The run as it is, and through the proxy.
  Shell run(const std::string& save, const TcpProxy* proxy, const Words& more = {}) const {
    const std::string through =
        proxy == nullptr ? "" : concat("LD_PRELOAD=", ESPALIER_PLANTED_FAULTS, " PLANTED_PROXY=", proxy->port(), " ");
    return shell(folder_, concat(through, "espalier launch --nproc-per-node 3 ",
                                 training(save, Words{"--distributed-backend", "gloo", "--global-batch-size", "6",
                                                      "--train-samples", "120", "--lr-decay-samples", "120"} +
                                                    more)));
  }
  void expect_equal(const std::string& save) const {
    EXPECT_EQ(step_records(folder_ / save), step_records(folder_ / "straight"));
    EXPECT_EQ(different_tensors(folder_ / "straight/step_00000020", folder_ / (save + "/step_00000020")), Words{});
  }
};

TEST_F(GlooNetwork, ThatIsSlowChangesNoBit) {
  ASSERT_EQ(run("straight", nullptr).exit_code, 0);
  TcpProxy proxy({.target_port = 0, .delay = std::chrono::milliseconds(1)});
  const Shell late = run("late", &proxy);
  ASSERT_EQ(late.exit_code, 0) << late.errors;
  EXPECT_GE(proxy.num_connections(), 3) << "one of each pair, in each group";
  expect_equal("late");
}

// A second connection with the same words is not taken for the first: equal bits, or a failure that says why.
TEST_F(GlooNetwork, ConnectionsThatComeTwiceChangeNoBit) {
  ASSERT_EQ(run("straight", nullptr).exit_code, 0);
  TcpProxy proxy({.target_port = 0, .doubles_connections = true});
  const Shell twice = run("twice", &proxy);
  EXPECT_GE(proxy.num_connections(), 3);
  std::printf("connections made twice: exit code %d\n", twice.exit_code);
  if (twice.exit_code == 0)
    expect_equal("twice");
  else  // Gloo took the second one, and the rank at its other end hangs
    EXPECT_NE(twice.errors.find("Root Cause"), std::string::npos) << twice.errors;
}

// Bytes that come twice, which TCP never hands on: the run ends and says so; it does not go on with other numbers.
TEST_F(GlooNetwork, BytesThatComeTwiceEndTheRun) {
  ASSERT_EQ(run("straight", nullptr).exit_code, 0);
  TcpProxy proxy({.target_port = 0, .doubles_data_after = 20'000});
  const Shell twice = run("twice", &proxy, {"--distributed-timeout-minutes", "1"});
  EXPECT_GT(proxy.num_doubled(), 0);
  std::printf("bytes twice: exit code %d\n", twice.exit_code);
  EXPECT_NE(twice.exit_code, 0) << twice.errors;
  EXPECT_NE(twice.errors.find("Root Cause"), std::string::npos) << twice.errors;
  const auto straight = step_records(folder_ / "straight"), made = step_records(folder_ / "twice");
  for (size_t step = 0; step < made.size(); ++step) EXPECT_EQ(made[step], straight[step]);
}

TEST_F(GlooNetwork, ThatIsCutNamesBothEnds) {
  TcpProxy proxy({.target_port = 0});
  auto whole = std::async(std::launch::async, [&] {
    return run("run", &proxy, {"--train-samples", "8000000", "--lr-decay-samples", "8000000"});
  });
  EXPECT_TRUE(wait_until(60, [&] { return num_records(folder_ / "run") > 3; }));
  const auto begin = std::chrono::steady_clock::now();
  proxy.cut();
  const Shell ended = whole.get();
  std::printf("cut: ended after %.1f s, exit code %d\n",
              std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), ended.exit_code);
  EXPECT_EQ(ended.exit_code, 69) << ended.errors;
  for (const char* rank : {"rank      : 0", "rank      : 1", "rank      : 2"})
    EXPECT_NE(ended.errors.find(rank), std::string::npos) << rank << ended.errors;
}

}  // namespace network_test
}  // namespace espalier::test
