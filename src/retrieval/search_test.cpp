#include "retrieval/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/format.h"
#include "retrieval/internal/test_vectors.h"
#include "retrieval/search_plugin.h"

namespace espalier::retrieval {
namespace {

using test_vectors::plain_search;
using test_vectors::Vectors;

void expect_plain(const Vectors& rows, const Vectors& queries, const std::vector<std::vector<Hit>>& found,
                  int64_t count, const std::string& where) {
  ASSERT_EQ(found.size(), queries.id_list.size()) << where;
  for (size_t query = 0; query < found.size(); ++query) {
    const std::vector<Hit> expected = plain_search(rows, queries.numbers.data() + query * queries.width, count);
    ASSERT_EQ(found[query].size(), expected.size()) << where;
    for (size_t place = 0; place < expected.size(); ++place) {
      ASSERT_EQ(found[query][place].id, expected[place].id) << where << ": query " << query << ", place " << place;
      ASSERT_EQ(found[query][place].score, expected[place].score) << where << ": query " << query;
    }
  }
}

// The same index in several shardings, searched with several amounts of memory and threads.
void expect_plain_in_all_layouts(Vectors& rows, const Vectors& queries, int64_t count) {
  const test_files::TestFolder folder;
  const auto num_rows = static_cast<int64_t>(rows.id_list.size());
  for (const int64_t shard_rows : {num_rows, (num_rows + 2) / 3, std::max<int64_t>(1, num_rows / 7)}) {
    const std::string path = folder / concat("index-", shard_rows);
    build_index(rows, {.folder = path, .shard_rows = shard_rows, .batch_rows = 5, .overwrite = true});
    const IndexFacts index = read_index(path);
    const int64_t third_of_the_rows = 2 * (num_rows / 3 + 1) * rows.width * static_cast<int64_t>(sizeof(float));
    for (const int64_t memory : {int64_t{1}, third_of_the_rows, int64_t{1} << 30}) {
      if (memory == 1 && num_rows > 10) continue;  // a row at a time, of one query
      const int threads = memory == third_of_the_rows ? 2 : 1;
      const auto found = search(index, queries.numbers.data(), static_cast<int64_t>(queries.id_list.size()),
                                {.count = count, .memory_bytes = memory, .threads = threads});
      expect_plain(rows, queries, found, count, concat(shard_rows, " rows a shard, ", memory, " bytes"));
    }
  }
}

TEST(Search, EqualsAPlainLoopForAnyShardsMemoryAndThreads) {
  for (const int64_t num_rows : {1, 7, 33, 1000})
    for (const int64_t width : {1, 33, 128}) {
      Vectors rows = test_vectors::random(num_rows, width, 1);
      // Over 20 queries Faiss calls BLAS, under that its own loop.
      expect_plain_in_all_layouts(rows, test_vectors::random(num_rows == 33 ? 3 : 40, width, 2), 10);
    }
}

TEST(Search, EqualRowsAreInTheOrderOfTheirIds) {
  Vectors rows = test_vectors::random(300, 33, 3);
  for (size_t row = 7; row < 300; row += 2)  // 150 times the same one, ids in no order
    std::copy_n(rows.numbers.begin() + 5 * 33, 33, rows.numbers.begin() + static_cast<int64_t>(row) * 33);
  Vectors queries = test_vectors::random(25, 33, 4);
  std::copy_n(rows.numbers.begin() + 5 * 33, 33, queries.numbers.begin());
  std::fill_n(queries.numbers.begin() + 33, 33, 0.0F);  // nearest to all alike
  expect_plain_in_all_layouts(rows, queries, 10);
}

// One unit in the last place of one number: less than what sums in fp32 lose.
TEST(Search, TellsApartWhatRoundingInSinglePrecisionDoesNot) {
  Vectors rows = test_vectors::random(1, 128, 5);
  const Vectors queries = rows;
  for (int row = 1; row < 500; ++row) {
    rows.id_list.push_back(1000 - row);
    for (size_t at = 0; at < 128; ++at) {
      const float number = queries.numbers[at];
      rows.numbers.push_back(at == static_cast<size_t>(row) % 128 ? std::nextafter(number, row % 3 == 0 ? 9.0F : -9.0F)
                                                                  : number);
    }
  }
  expect_plain_in_all_layouts(rows, queries, 10);
}

TEST(Search, TakesInnerProductsBeyondSinglePrecision) {
  Vectors rows = test_vectors::random(50, 7, 6);
  Vectors queries = test_vectors::random(3, 7, 7);
  for (float& number : rows.numbers) number *= 1e30F;
  for (float& number : queries.numbers) number *= 1e30F;
  expect_plain_in_all_layouts(rows, queries, 10);
}

TEST(Search, RefusesAShardThatHasChanged) {
  const test_files::TestFolder folder;
  Vectors rows = test_vectors::random(33, 7, 8);
  build_index(rows, {.folder = folder / "index", .shard_rows = 10});
  const std::string path = folder / "index/shard-00002.safetensors";
  std::string bytes = read_file(path);
  bytes[bytes.size() - 3] ^= 1;
  test_files::write_text(path, bytes);
  const std::string error =
      test_files::error_of([&] { search(read_index(folder / "index"), rows.numbers.data(), 1, {.count = 3}); });
  EXPECT_NE(error.find(concat("'", path, "' has changed since it was built")), std::string::npos) << error;
}

TEST(SearchPlugin, SaysWhatIsMissing) {
  const std::string error = test_files::error_of([] { load_search_plugin("/nowhere/libespalier_search.so"); });
  EXPECT_NE(error.find("'/nowhere/libespalier_search.so' does not exist"), std::string::npos) << error;
  const test_files::TestFolder folder;
  test_files::write_text(folder / "no.so", "text");
  const std::string other = test_files::error_of([&] { load_search_plugin(folder / "no.so"); });
  EXPECT_NE(other.find("cannot load '"), std::string::npos) << other;
}

}  // namespace
}  // namespace espalier::retrieval
