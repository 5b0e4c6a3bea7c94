// `espalier index` as a user meets it.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

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

// 300 points of a circle in their order, of which a list holds an arc.
TEST_F(IndexCommand, FindsByAnIndexString) {
  std::vector<float> circle;
  std::vector<int64_t> ids;
  for (int at = 0; at < 300; ++at) {
    circle.push_back(static_cast<float>(std::cos(at * 2 * M_PI / 300)));
    circle.push_back(static_cast<float>(std::sin(at * 2 * M_PI / 300)));
    ids.push_back(1000 + at);
  }
  write_rows("circle", circle, ids);
  write_rows("query", {1, 0.001F}, {7});
  const std::string search = "espalier index search index --queries query --top-k 3 --json ";
  const Outcome built = bash(concat(
      "set -e; espalier index build --embeddings circle --embedding-path index --index-str IVF8,Flat --nprobe 2 "
      ">/dev/null; ",
      search, "; ", search, "--exact; ", search, "--nprobe 1 --top-k 300; mv index/trained.json index/training.json; ",
      "rm index/trained.faiss; espalier index build --embeddings circle --embedding-path index --index-str IVF8,Flat ",
      "--nprobe 2 >/dev/null; ", search, "; espalier index train index --index-str IVF5,SQ8 --overwrite --json"));
  ASSERT_EQ(built.exit_code, 0) << built.errors;
  EXPECT_NE(built.errors.find("recall@10 of IVF8,Flat of 300 training rows, nprobe 2: 1.0000 over 100 rows"),
            std::string::npos)
      << built.errors;
  EXPECT_NE(built.errors.find("approximate search by IVF8,Flat of 300 training rows, nprobe 2; --exact compares"),
            std::string::npos)
      << built.errors;
  std::istringstream lines(built.output);
  std::string approximate, exact, arc, again;
  for (std::string* line : {&approximate, &exact, &arc, &again}) std::getline(lines, *line);
  EXPECT_EQ(nlohmann::json::parse(exact)["ids"], nlohmann::json({1000, 1001, 1299}));
  EXPECT_EQ(approximate, exact);
  EXPECT_EQ(again, exact);
  EXPECT_LT(nlohmann::json::parse(arc)["ids"].size(), 150u);
  EXPECT_NE(built.output.find("\"index_string\": \"IVF5,SQ8\""), std::string::npos) << built.output;
  for (const auto& [command, part] :
       {std::pair<const char*, const char*>{
            "espalier index train index --index-str IVF4,Flat",
            "has another trained index: index_string is \"IVF5,SQ8\" there and \"IVF4,Flat\" now"},
        {"espalier index train index --index-str Flat", "that is the exact search, which needs no training"},
        {"espalier index train index", "--index-str is required"},
        {"espalier index train index --index-str IVF4000,Flat --overwrite", "needs 4,000 training rows or more"},
        {"espalier index build --embeddings circle --embedding-path new --index-str IVF4,PQ3", "does not work for"},
        {"espalier index search index --queries query --nprobe 1 --exact", "--exact is none; give one of them"},
        {"rm index/train*; espalier index search index --queries query --nprobe 1",
         "has none: leave them out, or make"},
        {"espalier index build --embeddings query --embedding-path index --index-str IVF1,Flat",
         "'index' holds an index; --overwrite replaces it"}}) {
    const Outcome refused = bash(command);
    EXPECT_NE(refused.exit_code, 0) << command;
    EXPECT_NE(refused.errors.find(part), std::string::npos) << part << "\n" << refused.errors;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "work/new"));
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
