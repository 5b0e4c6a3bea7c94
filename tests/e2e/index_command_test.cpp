// `espalier index` as a user meets it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "store/safetensors.h"
#include "tests/support/command.h"

namespace espalier {
namespace {

class IndexCommand : public Command {
 protected:
  // Rows of two numbers.
  void write_rows(const std::string& name, const std::vector<float>& numbers, const std::vector<int64_t>& ids) const {
    const auto count = static_cast<int64_t>(numbers.size() / 2);
    std::vector<store::TensorEntry> entries;
    entries.push_back({"embeddings", store::DType::kFloat32, {count, 2}});
    if (!ids.empty()) entries.push_back({"ids", store::DType::kInt64, {count}});
    std::string bytes = store::safetensors_header(entries, {});
    bytes.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float));
    bytes.append(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int64_t));
    write_file_atomically(folder_ / "work" / name, bytes);
  }
};

TEST_F(IndexCommand, FindsWhatWasBuilt) {
  write_rows("a", {1, 0, 0, 1, 0.5, 0.5}, {70, 50, 60});
  write_rows("b", {0, 1, -1, 0}, {40, 30});
  write_rows("questions", {0, 2, 1, 1}, {});
  const Outcome built = bash("espalier index build --embeddings a b --embedding-path index --shard-rows 2 --json");
  ASSERT_EQ(built.exit_code, 0) << built.errors;
  const auto summary = nlohmann::json::parse(built.output);
  EXPECT_EQ(summary["rows"], 5);
  EXPECT_EQ(summary["dimension"], 2);
  EXPECT_EQ(summary["shards"], 3);
  const Outcome found = bash("espalier index search index --queries questions --faiss-topk-retrievals 3 --json");
  EXPECT_EQ(found.exit_code, 0) << found.errors;
  EXPECT_EQ(found.output,
            "{\"query\":0,\"ids\":[40,50,60],\"scores\":[2.0,2.0,1.0]}\n"
            "{\"query\":1,\"ids\":[40,50,60],\"scores\":[1.0,1.0,1.0]}\n");
  const Outcome shown = bash("espalier index search index --queries questions --top-k 1");
  EXPECT_EQ(shown.output, "query 0\n            40  2.000000\nquery 1\n            40  1.000000\n");
}

TEST_F(IndexCommand, SaysWhatIsWrong) {
  write_rows("a", {1, 0, 0, 1}, {7, 7});
  const Outcome twice = bash("espalier index build --embeddings a --embedding-path index");
  EXPECT_EQ(twice.exit_code, 65);
  EXPECT_NE(twice.errors.find("id 7 occurs in two rows"), std::string::npos) << twice.errors;
  const Outcome none = bash("espalier index search index --queries a");
  EXPECT_EQ(none.exit_code, 66);
  EXPECT_NE(none.errors.find("'index' holds no index (no index.json)"), std::string::npos) << none.errors;
  const Outcome memory = bash("espalier index search index --queries a --memory much --workers 100000");
  EXPECT_EQ(memory.exit_code, 2);
  EXPECT_NE(memory.errors.find("--memory much: expected an amount such as 512MiB"), std::string::npos);
  write_rows("a", {1, 0, 0, 1}, {7, 8});
  write_rows("bad", {1, std::numeric_limits<float>::infinity()}, {});
  const Outcome bad =
      bash("espalier index build --embeddings a --embedding-path index; espalier index search index --queries bad");
  EXPECT_EQ(bad.exit_code, 65);
  EXPECT_NE(bad.errors.find("query 0 has inf as number 1; expected finite numbers"), std::string::npos) << bad.errors;
}

}  // namespace
}  // namespace espalier
