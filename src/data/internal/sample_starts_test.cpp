#include "data/internal/sample_starts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "data/sample_index.h"

namespace espalier::data::internal {
namespace {

using Type = IndexArray::Type;

// Empty documents, some longer than two bytes tell, one longer than a thread's whole share, and the rest around 800.
std::vector<int32_t> mixed_sizes(int64_t num_documents, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> sizes(static_cast<size_t>(num_documents));
  for (int32_t& size : sizes) size = random() % 9 == 0 ? 0 : static_cast<int32_t>(random() % 1600);
  for (size_t at = 5; at < sizes.size(); at += 1009) sizes[at] = static_cast<int32_t>(65533 + random() % 5);
  sizes[sizes.size() / 2] = 30'000'000;
  return sizes;
}

// The row walked one document at a time, with nothing but additions.
std::vector<int64_t> plain_starts(const std::vector<int32_t>& sizes, const std::vector<int64_t>& documents,
                                  int64_t sequence_length, int64_t num_rows) {
  std::vector<int64_t> starts = {0, 0};
  int64_t position = 0, offset = 0;
  for (int64_t row = 1; row < num_rows; ++row) {
    for (offset += sequence_length; offset >= sizes[static_cast<size_t>(documents[static_cast<size_t>(position)])];)
      offset -= sizes[static_cast<size_t>(documents[static_cast<size_t>(position++)])];
    starts.push_back(position);
    starts.push_back(offset);
  }
  return starts;
}

std::vector<int64_t> values_of(const IndexArray& array) {
  std::vector<int64_t> values(static_cast<size_t>(array.size()));
  for (int64_t at = 0; at < array.size(); ++at) values[static_cast<size_t>(at)] = array[at];
  return values;
}

TEST(SampleStarts, AnyNumberOfThreadsFindsThoseOfThePlainWalk) {
  const std::vector<int32_t> sizes = mixed_sizes(50'021, 3);
  const DocumentSizes all{std::span(sizes)};
  const DocumentRange range{7, 50'014};
  std::vector<int64_t> order(2 * static_cast<size_t>(range.size()));
  for (size_t at = 0; at < order.size(); ++at) order[at] = range.begin + static_cast<int64_t>(at) % range.size();
  std::shuffle(order.begin(), order.end(), std::mt19937(4));
  int64_t tokens = 0;
  for (const int64_t document : order) tokens += sizes[static_cast<size_t>(document)];

  for (const int64_t sequence_length : {1000, 2048, 131, 7'000'001}) {
    const int64_t num_rows = (tokens - 1) / sequence_length + 1;
    const std::vector<int64_t> expected = plain_starts(sizes, order, sequence_length, num_rows);
    for (const int num_threads : {1, 2, 5})
      for (const Type type : {Type::kInt32, Type::kInt64}) {
        IndexArray documents(type, static_cast<int64_t>(order.size()));
        documents.visit([&](auto values) { std::copy(order.begin(), order.end(), values.begin()); });
        IndexArray starts(type, num_rows, 2);
        std::optional<ThreadPool> pool;
        if (num_threads > 1) pool.emplace(num_threads);
        Progress progress("starts", 0, Progress::Unit::kItems);
        find_sample_starts({all, range, documents, sequence_length}, starts, pool ? &*pool : nullptr, progress);
        const std::vector<int64_t> found = values_of(starts);
        const auto [wrong, right] = std::mismatch(found.begin(), found.end(), expected.begin(), expected.end());
        ASSERT_TRUE(wrong == found.end() && right == expected.end())
            << num_threads << " threads, samples of " << sequence_length << ": row " << (wrong - found.begin()) / 2;
      }
  }
}

// More than a thread does alone: the whole order, beside numpy's generator by the standard library and plain loops.
TEST(SampleStarts, AnOrderOfSeveralThreadsIsThatOfPlainLoops) {
  const std::vector<int32_t> sizes = mixed_sizes(400'003, 5);
  const int64_t tokens = std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), length = 700;
  const SampleIndex index =
      SampleIndex::build(std::span(sizes), {{0, 400'003}, length, tokens * 5 / 2 / length, 1234, "large"});
  ASSERT_EQ(index.num_epochs(), 3);
  ASSERT_TRUE(index.plan().separate_last_epoch);

  std::mt19937 words(1234);
  const auto shuffle = [&](std::vector<int64_t>& values, size_t begin, size_t end) {
    for (size_t at = end - begin; at-- > 1;) {
      size_t mask = 1, partner;
      while (mask < at) mask = 2 * mask + 1;
      do partner = words() & mask;
      while (partner > at);
      std::swap(values[begin + at], values[begin + partner]);
    }
  };
  std::vector<int64_t> documents(3 * sizes.size()), order(static_cast<size_t>(index.size()));
  for (size_t at = 0; at < documents.size(); ++at) documents[at] = static_cast<int64_t>(at % sizes.size());
  shuffle(documents, 0, 2 * sizes.size());
  shuffle(documents, 2 * sizes.size(), documents.size());
  std::iota(order.begin(), order.end(), 0);
  const auto leading = static_cast<size_t>((2 * tokens - 1) / length);
  shuffle(order, 0, leading);
  shuffle(order, leading, order.size());

  EXPECT_TRUE(values_of(index.documents()) == documents);
  EXPECT_TRUE(values_of(index.starts()) == plain_starts(sizes, documents, length, index.size() + 1));
  EXPECT_TRUE(values_of(index.order()) == order);
}

}  // namespace
}  // namespace espalier::data::internal
