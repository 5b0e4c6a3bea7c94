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
  const Shell one = shell(folder_, "espalier launch --nproc-per-node 2 " + training("one"));
  ASSERT_EQ(one.exit_code, 0) << one.errors;
  TcpProxy proxy(port_, std::chrono::milliseconds(20));
  const Shell two = shell(
      folder_, machine(1, proxy.port(), training("two")) + " & " + machine(0, port_, training("two")) + " && wait $!");
  ASSERT_EQ(two.exit_code, 0) << two.errors;
  EXPECT_GE(proxy.num_connections(), 2) << "the launcher's and its rank's";
  EXPECT_EQ(step_records(folder_ / "two"), step_records(folder_ / "one"));
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

}  // namespace network_test
}  // namespace espalier::test
