#include "retrieval/trained_index.h"

#include <gtest/gtest.h>

#include <bit>

#include "base/file.h"
#include "base/format.h"
#include "retrieval/internal/test_vectors.h"

namespace espalier::retrieval {
namespace trained_index_test {

namespace fs = std::filesystem;
using test_files::error_of;
using test_files::TestFolder;
using test_vectors::plain_search;
using test_vectors::Vectors;

std::vector<std::vector<Hit>> found_in(const std::string& folder, const Vectors& queries, int64_t count,
                                       const ProbePlan& probes, int threads = 1) {
  const IndexFacts index = read_index(folder);
  return search(index, queries.numbers.data(), static_cast<int64_t>(queries.id_list.size()),
                {.count = count, .threads = threads, .trained = open_trained_index(index, probes)});
}

void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "expected '" << part << "' in: " << text;
}

// 64 clusters of 16 rows around the rows of a Hadamard matrix, times 10, with ids in no order; the queries are the
// centers. Centers are orthogonal, so a cluster's rows are nearest to its own center by far.
constexpr int64_t kClusters = 64, kOfCluster = 16;

float hadamard(int64_t row, int64_t column) {
  return std::popcount(static_cast<uint64_t>(row & column)) % 2 == 0 ? 1.0F : -1.0F;
}

Vectors clustered() {
  Vectors rows = test_vectors::random(kClusters * kOfCluster, kClusters, 21);
  for (int64_t row = 0; row < kClusters * kOfCluster; ++row)
    for (int64_t at = 0; at < kClusters; ++at) {
      float& number = rows.numbers[static_cast<size_t>(row * kClusters + at)];
      number = 10 * hadamard(row % kClusters, at) + number / 100;
    }
  return rows;
}

Vectors centers() {
  Vectors queries = test_vectors::random(kClusters, kClusters, 1);
  for (int64_t row = 0; row < kClusters; ++row)
    for (int64_t at = 0; at < kClusters; ++at)
      queries.numbers[static_cast<size_t>(row * kClusters + at)] = hadamard(row, at);
  return queries;
}

void expect_plain(const Vectors& rows, const Vectors& queries, const std::vector<std::vector<Hit>>& found,
                  int64_t count) {
  ASSERT_EQ(found.size(), queries.id_list.size());
  for (size_t query = 0; query < found.size(); ++query) {
    const auto expected =
        plain_search(rows, queries.numbers.data() + static_cast<int64_t>(query) * queries.width, count);
    ASSERT_EQ(found[query].size(), expected.size()) << query;
    for (size_t place = 0; place < expected.size(); ++place) {
      ASSERT_EQ(found[query][place].id, expected[place].id) << "query " << query << ", place " << place;
      ASSERT_EQ(found[query][place].score, expected[place].score) << "query " << query << ", place " << place;
    }
  }
}

TEST(TrainedIndex, ThatReadsAllListsFindsWhatAPlainLoopFinds) {
  for (const char* index_string : {"IVF7,Flat", "IVF7_HNSW4,Flat", "IVF1,Flat"})
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(concat(index_string, ", threads: ", threads));
      const TestFolder folder;
      Vectors rows = test_vectors::random(1000, 33, 3);
      build_index(rows, {.folder = folder.path(), .shard_rows = 301});
      train_index({.folder = folder.path(), .index_string = index_string, .nprobe = 1, .threads = threads});
      const Vectors queries = test_vectors::random(41, 33, 4);
      expect_plain(rows, queries, found_in(folder.path(), queries, 10, {.nprobe = 7}, threads), 10);
      expect_plain(rows, queries, found_in(folder.path(), queries, 1000, {.nprobe = 1000}, threads), 1000);
    }
}

// Of eight numbers each, a cluster's pieces are one of 16 rows of a smaller Hadamard matrix and their opposites: each
// quarter of the rows that k-means begins with holds all of them, so that a code tells which it is.
TEST(TrainedIndex, OfProductCodesFindsTheRowsOfEachCluster) {
  for (const char* index_string : {"PQ8", "SQ8", "IVF16,Flat", "IVF16,SQ8"}) {
    SCOPED_TRACE(index_string);
    const TestFolder folder;
    Vectors rows = clustered();
    build_index(rows, {.folder = folder.path(), .shard_rows = 100});
    train_index({.folder = folder.path(), .index_string = index_string});
    const IndexFacts index = read_index(folder.path());
    const Vectors queries = centers();
    // One list is enough: the rows of a cluster are in one, with the center.
    expect_plain(rows, queries, found_in(folder.path(), queries, kOfCluster, {.nprobe = 1}), kOfCluster);
    EXPECT_EQ(measure_recall(index, queries.numbers.data(), kClusters,
                             {.count = kOfCluster, .trained = open_trained_index(index, {.nprobe = 1})}),
              1.0);
  }
}

// Of 16 lists of random rows one holds few of a query's nearest; the recall is that of a plain count.
TEST(TrainedIndex, MeasuresWhatItMisses) {
  const TestFolder folder;
  Vectors rows = test_vectors::random(1000, 7, 5);
  build_index(rows, {.folder = folder.path()});
  train_index({.folder = folder.path(), .index_string = "IVF16,Flat"});
  const Vectors queries = test_vectors::random(50, 7, 6);
  const IndexFacts index = read_index(folder.path());
  double last = 0;
  for (const int64_t nprobe : {1, 4, 16}) {
    const auto trained = open_trained_index(index, {.nprobe = nprobe});
    const auto found = found_in(folder.path(), queries, 10, {.nprobe = nprobe});
    double hits = 0;
    for (size_t query = 0; query < 50; ++query)
      for (const Hit& wanted : plain_search(rows, queries.numbers.data() + query * 7, 10))
        for (const Hit& hit : found[query]) hits += hit.id == wanted.id;
    const double recall = measure_recall(index, queries.numbers.data(), 50, {.count = 10, .trained = trained});
    EXPECT_DOUBLE_EQ(recall, hits / 500) << nprobe;
    EXPECT_GT(recall, last) << nprobe;
    last = recall;
  }
  EXPECT_EQ(last, 1.0);
}

TEST(TrainedIndex, HasTheSameBytesForAnyThreadsAndShardsAndAfterInterruptions) {
  for (const char* index_string : {"IVF16_HNSW4,Flat", "IVF16,PQ4", "OPQ4_16,IVF8,PQ4", "PQ8", "RR16,IVF4,SQ4"}) {
    SCOPED_TRACE(index_string);
    const TestFolder folder;
    Vectors rows = test_vectors::random(3000, 32, 7);
    const auto train = [&](const std::string& path, int threads) {
      train_index({.folder = path, .index_string = index_string, .training_rows = 2000, .threads = threads});
    };
    for (const auto& [name, shard_rows] : {std::pair<const char*, int64_t>{"a", 3000}, {"b", 700}, {"c", 3000}})
      build_index(rows, {.folder = folder / name, .shard_rows = shard_rows});
    train(folder / "a", 1);
    train(folder / "b", 5);
    const std::string bytes = read_file(folder / "a/trained.faiss");
    EXPECT_EQ(bytes, read_file(folder / "b/trained.faiss"));
    // Folders where files belong stop it, as a full disk would.
    for (const char* stopped : {"trained-empty.faiss.tmp", "codes-00000.safetensors.tmp", "trained.faiss.tmp"}) {
      fs::create_directory(folder / concat("c/", stopped));
      EXPECT_ANY_THROW(train(folder / "c", 2)) << stopped;
      fs::remove(folder / concat("c/", stopped));
      expect_has(error_of([&] { found_in(folder / "c", rows, 1, {}); }), "is not complete");
    }
    train(folder / "c", 3);
    EXPECT_EQ(bytes, read_file(folder / "c/trained.faiss"));
    EXPECT_EQ(read_file(folder / "a/trained.json"), read_file(folder / "c/trained.json"));
    // As if it had been killed before it had put away what it needed.
    for (const char* name : {"training.json", "trained-empty.faiss", "codes-00000.safetensors"})
      test_files::write_text(folder / concat("c/", name), "left");
    train(folder / "c", 1);
    std::vector<std::string> left;
    for (const auto& entry : fs::directory_iterator(folder / "c")) left.push_back(entry.path().filename());
    std::sort(left.begin(), left.end());
    EXPECT_EQ(left,
              (std::vector<std::string>{"index.json", "shard-00000.safetensors", "trained.faiss", "trained.json"}));
    // What is found does not depend on threads either, nor on the other queries.
    const auto one = found_in(folder / "a", rows, 5, {.nprobe = 2}, 1);
    const auto many = found_in(folder / "b", rows, 5, {.nprobe = 2}, 4);
    Vectors last = rows;
    last.numbers.erase(last.numbers.begin(), last.numbers.end() - 32);
    last.id_list = {1};
    const auto alone = found_in(folder / "a", last, 5, {.nprobe = 2}, 1);
    for (size_t query = 0; query < one.size(); ++query)
      for (size_t place = 0; place < one[query].size(); ++place)
        ASSERT_EQ(one[query][place].id, many[query][place].id) << query;
    for (size_t place = 0; place < alone[0].size(); ++place) EXPECT_EQ(alone[0][place].id, one.back()[place].id);
  }
}

TEST(TrainedIndex, RefusesAStringThatDoesNotFitWithWhatWorks) {
  for (const auto& [index_string, part] :
       {std::pair<const char*, const char*>{"IVF4096_HNSW4", "index string 'IVF4096_HNSW4' does not work"},
        {"nonsense", "could not parse"},
        {"HNSW32", "its codes are not Flat, PQ or SQ"},
        {"IVF16,PQ7", "multiple"},
        {"IVF16,Flat,RFlat", "its codes are not Flat, PQ or SQ"},
        {"PCA8,IVF16,Flat", "it transforms vectors by something else than OPQ or RR"},
        {"IMI2x3,Flat", "MultiIndex not implemented for inner prod search"},
        {"IVF64(IVF8,Flat),Flat", "its lists are found by neither Flat nor HNSW"},
        {"IVF16,PQ8x4fs", "its codes are not Flat, PQ or SQ"},
        {"IDMap,IVF16,Flat", "its codes are not Flat, PQ or SQ"},
        {"GpuIVF16,Flat", "could not parse"},
        {"L2norm,IVF16,Flat", "it transforms vectors by something else than OPQ or RR"},
        // Faiss divides by these, or takes them for sizes.
        {"PQ0", "its number 0 is not within 1 to"},
        {"OPQ8_0,IVF16,PQ8", "its number 0 is not within 1 to"},
        {"IVF0,Flat", "its number 0 is not within 1 to"},
        {"IVF16_HNSW0,Flat", "its number 0 is not within 1 to"},
        {"IVF2000000000,Flat", "its number 2000000000 is not within 1 to"},
        {"IVF99999999999999999999,Flat", "its number 99999999999999999999 is not within 1 to"},
        {"IVF16_HNSW1,Flat", "an HNSW has 2 to 1024 links of each list"},
        {"IVF16_HNSW4000,Flat", "an HNSW has 2 to 1024 links of each list"},
        {"OPQ7,IVF16,PQ8", "the number after OPQ, 7, does not divide the 64 dimensions"},
        {"RR1000000,SQ8", "it rotates vectors into 1000000 dimensions; 65536 are the most"}}) {
    const std::string problem = index_string_problem(index_string, 64, {}, 0);
    expect_has(problem, part);
    expect_has(problem, "what works is IVF<lists>,<codes>");
  }
  EXPECT_EQ(index_string_problem("OPQ64_128,IVF4194304_HNSW32,PQ64", 1024, {}, 0), "");
  EXPECT_EQ(index_string_problem("IVF4096_HNSW4,Flat", 1024, {}, 0), "");
  expect_has(
      index_string_problem("IVF4096_HNSW4,Flat", 64, 1000, 0),
      "needs 4,096 training rows or more, one for each centroid; the index has 1,000 rows. Use fewer lists, such "
      "as IVF25,Flat, or the exact search");
  expect_has(index_string_problem("IVF64,Flat", 64, 1000, 50), "the number of training rows is 50");
  expect_has(index_string_problem("PQ8", 64, 255, 0), "needs 256 training rows");
}

TEST(TrainedIndex, IsRefusedWhereItIsAnother) {
  const TestFolder folder;
  const std::string path = folder / "index";
  Vectors rows = test_vectors::random(500, 8, 9);
  build_index(rows, {.folder = path});
  const TrainingPlan plan{.folder = path, .index_string = "IVF4,Flat"};
  train_index(plan);
  const auto when = fs::last_write_time(path + "/trained.faiss");
  train_index(plan);  // is there
  EXPECT_EQ(fs::last_write_time(path + "/trained.faiss"), when);
  expect_has(error_of([&] { train_index({.folder = path, .index_string = "IVF5,Flat"}); }),
             R"(has another trained index: index_string is "IVF4,Flat" there and "IVF5,Flat" now; --overwrite)");
  expect_has(error_of([&] { train_index({.folder = path, .index_string = "IVF4,Flat", .training_rows = 77}); }),
             "training_rows is 500 there and 77 now");
  train_index({.folder = path, .index_string = "IVF5,Flat", .overwrite = true});
  EXPECT_EQ(open_trained_index(read_index(path))->name(), "IVF5,Flat of 500 training rows, nprobe 5");
  EXPECT_EQ(open_trained_index(read_index(path), {.nprobe = 2})->name(), "IVF5,Flat of 500 training rows, nprobe 2");

  const std::string bytes = read_file(path + "/trained.faiss");
  std::string damaged = bytes;
  damaged[damaged.size() - 9] ^= 1;
  test_files::write_text(path + "/trained.faiss", damaged);
  expect_has(error_of([&] { open_trained_index(read_index(path)); }), "has changed since it was built");
  test_files::write_text(path + "/trained.faiss", bytes);
  Vectors others = test_vectors::random(500, 8, 10);
  build_index(others, {.folder = folder / "others"});
  for (const char* name : {"/trained.faiss", "/trained.json"}) fs::copy(path + name, folder / "others");
  expect_has(error_of([&] { open_trained_index(read_index(folder / "others")); }), "was trained on other rows");
  // A shard of the other index, which has as many rows: the description beside it is still the old one.
  fs::copy(folder / "others/shard-00000.safetensors", path, fs::copy_options::overwrite_existing);
  expect_has(error_of([&] { open_trained_index(read_index(path)); }), ": the shard belongs to another index");
  // A new index has none of the old.
  build_index(others, {.folder = path, .overwrite = true});
  EXPECT_EQ(open_trained_index(read_index(path)), nullptr);
  std::string shard = read_file(path + "/shard-00000.safetensors");
  shard[shard.size() - 9] ^= 1;
  test_files::write_text(path + "/shard-00000.safetensors", shard);
  expect_has(error_of([&] { train_index(plan); }), "shard-00000.safetensors' has changed since it was built");
}

}  // namespace trained_index_test
}  // namespace espalier::retrieval
