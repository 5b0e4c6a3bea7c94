// `espalier doctor --nodes` under the launcher: two processes that stand for machines, one of them slowed down.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/e2e/run_files.h"
#include "tests/launch/launch_fixture.h"

namespace espalier::test {
namespace nodes_test {

TEST(DoctorNodes, NamesTheSlowMachineAndTheOneWithoutRoom) {
  const TemporaryFolder folder;
  const Shell run = shell(folder, concat(kAwait, kRank, "cd ", folder.path(), R"(
    espalier launch --nproc-per-node 2 doctor --nodes --seconds 1 --json . >slow 2>log & launcher=$!
    second() { pid=$(rank 1); [ -n "$pid" ]; }
    await second
    while kill -STOP $pid; do sleep 0.08; kill -CONT $pid; sleep 0.02; done 2>/dev/null
    wait $launcher; echo "launcher: $?"; cat slow
    espalier launch --nproc-per-node 2 doctor --nodes --seconds 0.1 . --min-free 1000000TiB 2>>log
    espalier launch --nproc-per-node 2 doctor --nodes --seconds 0.1 no-such-folder 2>>log | grep -c 'No such file'
    espalier doctor --nodes --seconds 0.1 2>>log | tail -1)"));
  ASSERT_TRUE(run.output.starts_with("launcher: 0\n")) << run.output << run.errors << read_file(folder / "log");
  const size_t begin = run.output.find('{'), end = run.output.find('\n', begin);
  const auto found = nlohmann::json::parse(run.output.substr(begin, end - begin));
  ASSERT_EQ(found["nodes"].size(), 2u);
  EXPECT_NE(found["nodes"][1]["faults"].dump().find("processor at"), std::string::npos) << run.output;
  EXPECT_EQ(found["nodes"][0]["faults"].dump().find("processor at"), std::string::npos) << run.output;
  EXPECT_LT(std::abs(found["nodes"][1]["seconds_ahead"].get<double>()), 0.5) << run.output;
  EXPECT_GT(found["nodes"][0]["send_bytes_per_second"].get<double>(), 1e6) << run.output;
  const std::string rest = run.output.substr(end);
  EXPECT_NE(rest.find("left\n"), std::string::npos) << rest;
  EXPECT_NE(rest.find("\n--exclude "), std::string::npos) << rest;
  EXPECT_NE(rest.find("\n2\nAll machines are alike.\n"), std::string::npos) << rest;
}

}  // namespace nodes_test
}  // namespace espalier::test
