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
                       .send_bytes_per_second = 1e9});
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

}  // namespace
}  // namespace espalier::launch
