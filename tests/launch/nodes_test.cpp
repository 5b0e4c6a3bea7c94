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

// Three that have the GPUs of a planted library: one fewer on the first, another driver and less memory on the third.
TEST(DoctorNodes, NamesTheMachineWhoseGpusAreOthers) {
  const TemporaryFolder folder;
  const Shell run = shell(folder, concat("export LD_LIBRARY_PATH=", ESPALIER_FAKE_NVML, "; cd ", folder.path(), R"(
    nodes() { espalier launch --nproc-per-node 3 doctor --nodes --seconds 0.1 . "$@" 2>>log; }
    FAKE_GPUS_0=1 FAKE_GPU_DRIVER_2=535.0 FAKE_GPU_MEMORY_2=1073741824 nodes --json
    FAKE_GPUS_0=1 nodes; FAKE_GPU_DRIVER_1=gone FAKE_GPU_LOST_2=1 nodes)"));
  const size_t end = run.output.find('\n');
  ASSERT_NE(end, std::string::npos) << run.errors << read_file(folder / "log");
  const auto nodes = nlohmann::json::parse(run.output.substr(0, end))["nodes"];
  ASSERT_EQ(nodes.size(), 3u) << run.output;
  EXPECT_EQ(nodes[0]["gpus"].size(), 1u);
  EXPECT_EQ(nodes[1]["gpus"].size(), 2u);
  EXPECT_EQ(nodes[1]["gpus"][1]["name"], "Planted GPU");
  EXPECT_EQ(nodes[1]["gpu_driver"], "550.90.07");
  const auto gpu_faults = [&](size_t node) {
    std::string text;
    for (const std::string fault : nodes[node]["faults"])
      if (fault.find("GPU") != std::string::npos) text += fault + "\n";
    return text;
  };
  EXPECT_EQ(gpu_faults(0), "1 GPU, others have 2\n");
  EXPECT_EQ(gpu_faults(1), "");
  EXPECT_EQ(gpu_faults(2), "GPU driver 535.0, others have 550.90.07\nGPU memory 1.00 GiB, others have 80.00 GiB\n");
  for (const char* part : {"1 Planted GPU of 80.00 GiB, driver 550.90.07", "1 GPU, others have 2", "--exclude ",
                           "GPU 1: nvmlDeviceGetHandleByIndex_v2 of libnvidia-ml.so.1: Not Found"})
    EXPECT_NE(run.output.find(part, end), std::string::npos) << part << " in\n" << run.output;
}

}  // namespace nodes_test
}  // namespace espalier::test
