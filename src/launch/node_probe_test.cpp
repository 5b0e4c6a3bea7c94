// Which of a job's machines stands out.
#include "launch/node_probe.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace espalier::launch {
namespace {

std::vector<NodeReport> alike(int64_t count) {
  std::vector<NodeReport> reports;
  for (int64_t rank = 0; rank < count; ++rank)
    reports.push_back({.rank = rank,
                       .host = concat("n", rank),
                       .num_cores = 8,
                       .compute_per_second = 1e11 * (1 + 0.01 * static_cast<double>(rank % 3)),
                       .memory_bytes_per_second = 1e11,
                       .free_memory_bytes = 1e11,
                       .free_disk_bytes = 1e12,
                       .disk = "/scratch",
                       .trouble = "",
                       .seconds_ahead = 0.001,
                       .latency_seconds = 1e-4,
                       .send_bytes_per_second = 1e9,
                       .gpus = {}});
  return reports;
}

std::string faults(const std::vector<NodeReport>& reports) {
  std::string text;
  for (const NodeVerdict& verdict : judge_nodes(reports, {}))
    for (const std::string& fault : verdict.faults) text += concat(verdict.host, ": ", fault, "\n");
  return text;
}

TEST(NodeProbe, NamesTheMachineThatStandsOut) {
  for (const int64_t count : {2, 3, 7, 33}) EXPECT_EQ(faults(alike(count)), "");
  std::vector<NodeReport> nodes = alike(7);
  nodes[3].compute_per_second = 0.8e11;
  EXPECT_EQ(faults(nodes), "n3: processor at 79 % of the median\n");
  nodes = alike(7);
  nodes[0].memory_bytes_per_second = 0.5e11;
  nodes[2].free_disk_bytes = 536870912;
  nodes[6].trouble = "cannot write there: Read-only file system";
  EXPECT_EQ(faults(nodes),
            "n0: memory at 50 % of the median\nn2: '/scratch' has 512.00 MiB left\n"
            "n6: '/scratch': cannot write there: Read-only file system\n");
  nodes = alike(7);
  nodes[4].send_bytes_per_second = nodes[3].send_bytes_per_second = 1e8;  // into the machine and out of it
  EXPECT_EQ(faults(nodes), "n4: network at 10 % of the median\n");
  nodes = alike(3);
  for (NodeReport& node : nodes) node.seconds_ahead = 60;
  nodes[0].seconds_ahead = 0;  // by its clock the others are ahead
  EXPECT_EQ(faults(nodes), "n0: clock 60.0 s behind\n");
  EXPECT_TRUE(judge_nodes({}, {}).empty());
}

TEST(NodeProbe, NamesTheMachineWhoseGpusAreOthers) {
  constexpr double kGiB = 1073741824.0;
  const auto with_gpus = [](int64_t machines) {
    std::vector<NodeReport> nodes = alike(machines);
    for (NodeReport& node : nodes)
      node.gpus = {.driver = "550.90.07", .gpus = std::vector<GpuInfo>(4, {"H100", 80 * kGiB, 0}), .trouble = {}};
    return nodes;
  };
  EXPECT_EQ(faults(with_gpus(5)), "");
  std::vector<NodeReport> nodes = with_gpus(5);
  nodes[1].gpus.gpus.pop_back();
  nodes[2].gpus.driver = "550.54.15";
  nodes[3].gpus.gpus[2].memory_bytes = 40 * kGiB;
  nodes[4].gpus.gpus[3].name = "H200";
  EXPECT_EQ(faults(nodes),
            "n1: 3 GPUs, others have 4\nn2: GPU driver 550.54.15, others have 550.90.07\n"
            "n3: GPU memory 40.00 GiB, others have 80.00 GiB\nn4: H100 and H200, others have H100\n");
  nodes = with_gpus(3);
  nodes[0].gpus = {.driver = "", .gpus = {}, .trouble = "its driver is gone"};
  EXPECT_EQ(faults(nodes), "n0: GPU: its driver is gone\nn0: 0 GPUs, others have 4\n");
  // Of two nobody is in the majority: the older driver and the fewer GPUs stand out.
  nodes = with_gpus(2);
  nodes[0].gpus.driver = "550.127.05";
  nodes[0].gpus.gpus.resize(1);
  EXPECT_EQ(faults(nodes), "n0: 1 GPU, others have 4\nn1: GPU driver 550.90.07, others have 550.127.05\n");
  nodes = alike(3);
  nodes[2].gpus = with_gpus(1)[0].gpus;
  EXPECT_EQ(faults(nodes), "n2: 4 GPUs, others have 0\n");
}

}  // namespace
}  // namespace espalier::launch
