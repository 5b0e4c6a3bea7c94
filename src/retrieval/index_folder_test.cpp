#include "retrieval/index_folder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "retrieval/embedding_files.h"
#include "retrieval/internal/test_vectors.h"

namespace espalier::retrieval {
namespace {

using test_files::error_of;
using test_files::TestFolder;
using test_files::write_text;
using test_vectors::Vectors;

void expect_error(const std::string& error, const std::string& part) {
  EXPECT_NE(error.find(part), std::string::npos) << "expected: " << part << "\nfound: " << error;
}

void write_vectors(const std::string& path, const Vectors& vectors, bool with_ids = true) {
  const auto count = static_cast<int64_t>(vectors.id_list.size());
  std::vector<store::TensorEntry> entries;
  entries.push_back({"embeddings", store::DType::kFloat32, {count, vectors.width}});
  if (with_ids) entries.push_back({"ids", store::DType::kInt64, {count}});
  std::string bytes = store::safetensors_header(entries, {});
  bytes.append(reinterpret_cast<const char*>(vectors.numbers.data()), vectors.numbers.size() * sizeof(float));
  if (with_ids)
    bytes.append(reinterpret_cast<const char*>(vectors.id_list.data()), vectors.id_list.size() * sizeof(int64_t));
  write_text(path, bytes);
}

std::string bytes_of(const std::string& folder) {
  std::string all;
  std::vector<std::filesystem::path> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path());
  std::sort(names.begin(), names.end());
  for (const auto& name : names) all += name.filename().string() + "\n" + read_file(name);
  return all;
}

TEST(IndexFolder, HoldsWhatTheSourceGave) {
  TestFolder folder;
  Vectors source = test_vectors::random(33, 7, 1);
  const BuildSummary summary = build_index(source, {.folder = folder / "a/index", .shard_rows = 10, .batch_rows = 4});
  EXPECT_EQ(summary.shards, 4);
  EXPECT_EQ(summary.rows, 33);
  const IndexFacts index = read_index(folder / "a/index");
  ASSERT_EQ(index.shards.size(), 4U);
  EXPECT_EQ(index.shards[3].rows, 3);
  std::vector<float> rows;
  std::vector<int64_t> ids;
  for (const Shard& shard : index.shards) {
    const ShardFile file(shard, index.dimension);
    rows.insert(rows.end(), file.rows(), file.rows() + shard.rows * index.dimension);
    ids.insert(ids.end(), file.ids(), file.ids() + shard.rows);
  }
  EXPECT_EQ(rows, source.numbers);
  EXPECT_EQ(ids, source.id_list);
  const uint64_t checksum = hash64(std::string(reinterpret_cast<const char*>(&ids[30]), 24) +
                                   std::string(reinterpret_cast<const char*>(&rows[210]), 84));
  EXPECT_EQ(index.shards[3].checksum, checksum);
}

TEST(IndexFolder, GoesOnWhereItStoppedAndEndsWithTheSameBytes) {
  TestFolder folder;
  Vectors source = test_vectors::random(33, 7, 2);
  build_index(source, {.folder = folder / "straight", .shard_rows = 10, .batch_rows = 4});
  source.fails_after = 27;
  source.rows_read = 0;
  const BuildPlan plan = {.folder = folder / "index", .shard_rows = 10, .batch_rows = 4};
  EXPECT_EQ(error_of([&] { build_index(source, plan); }), "stopped");
  expect_error(error_of([&] { read_index(plan.folder); }), "is not complete: the same 'espalier index build'");
  // A shard that a power cut left damaged is made again.
  const std::string damaged = folder / "index/shard-00000.safetensors";
  std::string bytes = read_file(damaged);
  bytes.back() ^= 1;
  write_text(damaged, bytes);
  source.fails_after = -1;
  source.rows_read = 0;
  const BuildSummary summary = build_index(source, plan);
  EXPECT_EQ(summary.shards_kept, 1);
  EXPECT_EQ(source.rows_read, 23);
  EXPECT_EQ(bytes_of(folder / "index"), bytes_of(folder / "straight"));
}

TEST(IndexFolder, RefusesWhatIsThereAndWhatIsOfSomethingElse) {
  TestFolder folder;
  Vectors source = test_vectors::random(33, 7, 3);
  BuildPlan plan = {.folder = folder / "index", .shard_rows = 10, .batch_rows = 4};
  source.fails_after = 15;
  EXPECT_EQ(error_of([&] { build_index(source, plan); }), "stopped");
  plan.shard_rows = 11;
  expect_error(error_of([&] { build_index(source, plan); }),
               "half built, from something else: shard_rows is 10 there and 11");
  plan.overwrite = true;
  source.fails_after = -1;
  EXPECT_EQ(build_index(source, plan).shards_kept, 0);
  plan.overwrite = false;
  write_text(plan.folder / "building.json", "{}");  // as a build leaves it that is killed at its very end
  expect_error(error_of([&] { build_index(source, plan); }), "holds an index; --overwrite replaces it");
  EXPECT_FALSE(std::filesystem::exists(plan.folder / "building.json"));
  EXPECT_EQ(read_index(plan.folder).shards.size(), 3U);
}

TEST(IndexFolder, RefusesRowsThatCannotBeSearched) {
  TestFolder folder;
  const BuildPlan plan = {.folder = folder / "index", .batch_rows = 4, .overwrite = true};
  Vectors source = test_vectors::random(9, 7, 4);
  source.numbers[5 * 7 + 2] = std::nanf("");
  expect_error(error_of([&] { build_index(source, plan); }),
               concat("row 5 (id ", source.id_list[5], ") has nan as number 2 of 7"));
  source = test_vectors::random(9, 7, 4);
  source.id_list[3] = source.id_list[8];
  expect_error(error_of([&] { build_index(source, plan); }), concat("id ", source.id_list[8], " occurs in two rows"));
  source.id_list[3] = -1;
  expect_error(error_of([&] { build_index(source, plan); }), "id -1 is negative");
  source = Vectors();
  expect_error(error_of([&] { build_index(source, plan); }), "there are no rows");
}

TEST(IndexFolder, SaysWhatIsWrongWithAFolder) {
  TestFolder folder;
  expect_error(error_of([&] { read_index(folder.path()); }), "holds no index (no index.json)");
  write_text(folder / "index.json", R"({"format": 2})");
  expect_error(error_of([&] { read_index(folder.path()); }), "has format 2; this program reads 1");
  write_text(folder / "index.json", R"({"format": 1, "rows": 3})");
  expect_error(error_of([&] { read_index(folder.path()); }), "is not an index of embeddings: 'dimension' is missing");
  write_text(folder / "index.json",
             R"({"format": 1, "rows": 3, "dimension": 2, "shards": [{"file": "a", "rows": 2, "xxh3": "0"}]})");
  expect_error(error_of([&] { read_index(folder.path()); }), "expected 16 hexadecimal digits as xxh3");
  write_text(
      folder / "index.json",
      R"({"format": 1, "rows": 3, "dimension": 2, "shards": [{"file": "a", "rows": 2, "xxh3": "0123456789abcdef"}]})");
  expect_error(error_of([&] { read_index(folder.path()); }), "says 3 rows of 2 numbers, and its shards have 2 rows");
  Vectors source = test_vectors::random(9, 7, 4);
  write_vectors(folder / "a", source);
  expect_error(error_of([&] { ShardFile({folder / "a", 9, 0}, 8); }), "expected embeddings F32 [9, 8] and ids I64 [9]");
}

TEST(EmbeddingFiles, AreReadAsOne) {
  TestFolder folder;
  const Vectors all = test_vectors::random(33, 7, 5);
  std::vector<std::filesystem::path> paths;
  for (const auto& [begin, end] : {std::pair{0, 20}, {20, 20}, {20, 33}}) {
    Vectors part;
    part.width = 7;
    part.numbers.assign(all.numbers.begin() + begin * 7, all.numbers.begin() + end * 7);
    part.id_list.assign(all.id_list.begin() + begin, all.id_list.begin() + end);
    paths.emplace_back(folder / concat("part", begin, "-", end));
    write_vectors(paths.back(), part);
  }
  EmbeddingFiles files(paths);
  EXPECT_EQ(files.ids(), all.id_list);
  std::vector<float> rows(5 * 7);
  files.read(17, 5, rows.data());
  EXPECT_EQ(rows, std::vector<float>(all.numbers.begin() + 17 * 7, all.numbers.begin() + 22 * 7));
  EXPECT_NE(files.fingerprint(), EmbeddingFiles({paths[0]}).fingerprint());
}

// An index that is joined from the shards of others is of their encoder, where they have the same one.
TEST(IndexFolder, KeepsWhatItWasMadeFrom) {
  TestFolder folder;
  const auto build = [&](const std::string& name, const EmbeddingOrigin& made_from, int64_t first_id) {
    Vectors source = test_vectors::random(7, 3, 8);
    source.made_from = made_from;
    for (int64_t& id : source.id_list) id += first_id;
    build_index(source, {.folder = folder / name});
    EXPECT_EQ(read_index(folder / name).origin, made_from);
    return std::filesystem::path(folder / name) / "shard-00000.safetensors";
  };
  const auto a = build("a", {.encoder = "one", .texts = "first"}, 0),
             b = build("b", {.encoder = "one", .texts = "second"}, 100), c = build("c", {"two", "third"}, 200),
             d = build("d", {"", "vectors"}, 300);
  EXPECT_EQ(EmbeddingFiles({a, b}).origin().encoder, "one");
  EXPECT_EQ(EmbeddingFiles({a, c}).origin().encoder, "");
  EXPECT_EQ(EmbeddingFiles({a, d}).origin().encoder, "");
  EmbeddingFiles joined({a, b});
  EXPECT_NE(joined.origin().texts, EmbeddingFiles({a, c}).origin().texts);
  build_index(joined, {.folder = folder / "joined"});
  EXPECT_EQ(read_index(folder / "joined").origin, joined.origin());
}

// The same for indexes that say nothing of it, as other programs may write them.
TEST(IndexFolder, MayBeOfAnythingWhereItDoesNotSay) {
  TestFolder folder;
  Vectors source = test_vectors::random(7, 3, 9);
  build_index(source, {.folder = folder / "index"});
  auto json = nlohmann::json::parse(read_file(folder / "index/index.json"));
  json.erase("encoder");
  json.erase("texts");
  write_text(folder / "index/index.json", json.dump());
  EXPECT_EQ(read_index(folder / "index").origin, EmbeddingOrigin{});
}

TEST(EmbeddingFiles, SayWhatIsMissing) {
  TestFolder folder;
  Vectors vectors = test_vectors::random(9, 7, 6);
  write_vectors(folder / "rows", vectors, /*with_ids=*/false);
  expect_error(error_of([&] { EmbeddingFiles({folder / "rows"}); }), "expected a tensor 'ids' (I64 [9])");
  EXPECT_EQ(EmbeddingFiles({folder / "rows"}, /*needs_ids=*/false).ids()[8], 8);
  write_vectors(folder / "good", vectors);
  vectors.width = 3;
  vectors.numbers.resize(27);
  write_vectors(folder / "other", vectors);
  expect_error(error_of([&] { EmbeddingFiles({folder / "good", folder / "other"}); }), "found rows of 3");
  std::vector<store::TensorEntry> entries = {{"embeddings", store::DType::kFloat16, {2, 2}}};
  write_text(folder / "half", store::safetensors_header(entries, {}) + std::string(8, '\0'));
  expect_error(error_of([&] { EmbeddingFiles({folder / "half"}); }), "found F16 [2, 2]");
  entries = {{"vectors", store::DType::kFloat32, {1, 2}}};
  write_text(folder / "named", store::safetensors_header(entries, {}) + std::string(8, '\0'));
  expect_error(error_of([&] { EmbeddingFiles({folder / "named"}); }), "expected a tensor 'embeddings'");
}

}  // namespace
}  // namespace espalier::retrieval
