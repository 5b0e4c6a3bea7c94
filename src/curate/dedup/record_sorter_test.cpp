#include "curate/dedup/record_sorter.h"

#include <random>

#include "curate/dedup/clusters.h"
#include "curate/internal/run_fixture.h"

namespace espalier::curate {
namespace {

struct TestRecord {
  uint32_t key, other;
  bool operator<(const TestRecord& right) const { return key != right.key ? key < right.key : other < right.other; }
  bool operator==(const TestRecord&) const = default;
};

TEST(RecordSorter, DrainsInOrderWhateverTheMemory) {
  const test::TestFolder folder;
  std::mt19937 random(1);
  for (const size_t count : {0, 1, 7, 33, 3000, 50000}) {
    std::vector<TestRecord> records(count);
    for (TestRecord& record : records)
      record = {static_cast<uint32_t>(random() % 1000), static_cast<uint32_t>(random())};
    std::vector<TestRecord> expected = records;
    std::sort(expected.begin(), expected.end());
    for (const int64_t memory : {0, 6000, 100000, 10000000}) {  // 0: runs of 16 records, merged in several rounds
      if (memory == 0 && count > 3000) continue;
      RecordSorter<TestRecord> sorter(folder / "", "records", memory);
      for (const TestRecord& record : records) sorter.add(record);
      std::vector<TestRecord> drained;
      sorter.drain([&](const TestRecord& record) { drained.push_back(record); });
      EXPECT_TRUE(drained == expected) << count << " records, " << memory << " bytes";
      const size_t in_memory = std::max<size_t>(16, static_cast<size_t>(memory) / sizeof(TestRecord) * 2 / 3);
      EXPECT_EQ(sorter.num_spilled_runs() > 0, count > in_memory) << count << " " << memory;
      EXPECT_TRUE(std::filesystem::is_empty(folder / "")) << "runs are left";
    }
  }
}

TEST(Clusters, AreTheComponentsOfThePairs) {
  std::mt19937 random(2);
  for (const size_t nodes : {1, 7, 33, 3000})
    for (const double pairs_of_node : {0.3, 1.0, 3.0})
      for (const int64_t memory : {nodes < 100 ? 0 : 10000, 1 << 20}) {
        const test::TestFolder folder;
        Clusters clusters(folder / "", memory);
        // The plain way: the least label spreads until nothing changes.
        std::vector<std::pair<uint64_t, uint64_t>> pairs;
        for (size_t pair = 0; pair < static_cast<size_t>(pairs_of_node * static_cast<double>(nodes)); ++pair)
          pairs.emplace_back(random() % nodes, random() % nodes);
        if (nodes == 3000 && pairs_of_node == 1)  // and one long chain
          for (uint64_t node = 0; node + 7 < nodes; node += 7) pairs.emplace_back(node, node + 7);
        std::vector<uint64_t> least(nodes);
        for (size_t node = 0; node < nodes; ++node) least[node] = node;
        for (bool changed = true; changed;) {
          changed = false;
          for (const auto& [a, b] : pairs) {
            const uint64_t to = std::min(least[a], least[b]);
            changed |= least[a] != to || least[b] != to;
            least[a] = least[b] = to;
          }
        }
        for (const auto& [a, b] : pairs) clusters.join(a, b);
        const nlohmann::ordered_json facts = clusters.finish();
        const ClusterMembers members(folder / "");
        int64_t num_duplicates = 0;
        for (uint64_t node = 0; node < nodes; ++node) {
          EXPECT_EQ(members.kept_for(node).value_or(node), least[node]) << node << " of " << nodes;
          num_duplicates += least[node] != node;
        }
        EXPECT_EQ(facts["duplicates"], num_duplicates);
      }
}

}  // namespace
}  // namespace espalier::curate
