// Plans of saving and loading against loops over single elements.
#include "plan/reshape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "base/error.h"

namespace espalier::plan {
namespace {

using spec::Extent;

// A random tensor on random ranks: several cuts of its elements, each cut with its parts on different ranks, so that
// parts overlap, repeat and are in scattered runs, and every element is held by somebody.
class RandomJob {
 public:
  explicit RandomJob(uint32_t seed) : random_(seed) {
    num_ranks_ = pick({1, 2, 3, 5, 8, 13});
    const int64_t num_tensors = 1 + below(5);
    for (int64_t i = 0; i < num_tensors; ++i) add_tensor("tensor " + std::to_string(i));
  }

  int64_t num_ranks() const { return num_ranks_; }
  const std::vector<SavedTensor>& tensors() const { return tensors_; }
  int64_t block_bytes() { return pick({8, 24, 104, 1000, 4096}); }

 private:
  int64_t below(int64_t end) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(end)); }
  int64_t pick(const std::vector<int64_t>& values) { return values[static_cast<size_t>(below(std::ssize(values)))]; }

  // The owner of every element in runs of random length: each rank of `ranks` gets what is its own, in order.
  void add_cut(SavedTensor& tensor, const std::vector<int64_t>& ranks) {
    std::map<int64_t, std::vector<Extent>> parts;
    std::map<int64_t, int64_t> local;
    const int64_t longest = pick({1, 7, 31, 500});
    for (int64_t begin = 0; begin < tensor.num_elements;) {
      const int64_t rank = ranks[static_cast<size_t>(below(std::ssize(ranks)))];
      const int64_t count = std::min(tensor.num_elements - begin, 1 + below(longest));
      std::vector<Extent>& part = parts[rank];
      if (!part.empty() && part.back().global_begin + part.back().count == begin)
        part.back().count += count;
      else
        part.push_back({begin, local[rank], count});
      local[rank] += count, begin += count;
    }
    for (const auto& [rank, extents] : parts) tensor.holders.push_back({rank, to_pattern(extents)});
  }

  void add_tensor(const std::string& name) {
    SavedTensor tensor{.name = name,
                       .num_elements = pick({0, 1, 2, 7, 97, 101, 997, 1024, 4099}),
                       .element_bytes = pick({2, 4, 8}),
                       .holders = {}};
    std::vector<int64_t> ranks(static_cast<size_t>(num_ranks_));
    std::iota(ranks.begin(), ranks.end(), 0);
    std::shuffle(ranks.begin(), ranks.end(), random_);
    const auto first_cut = static_cast<size_t>(1 + below(num_ranks_));
    add_cut(tensor, {ranks.begin(), ranks.begin() + static_cast<int64_t>(first_cut)});
    // The other ranks hold copies of parts, parts of another cut, or nothing.
    std::vector<int64_t> rest(ranks.begin() + static_cast<int64_t>(first_cut), ranks.end());
    if (!tensor.holders.empty())
      for (size_t i = 0; i < rest.size() / 2; ++i)
        tensor.holders.push_back(
            {rest[i], tensor.holders[static_cast<size_t>(below(std::ssize(tensor.holders)))].pattern});
    rest.erase(rest.begin(), rest.begin() + static_cast<int64_t>(rest.size() / 2));
    if (!rest.empty() && below(2) == 0) add_cut(tensor, rest);
    tensors_.push_back(std::move(tensor));
  }

  std::mt19937 random_;
  int64_t num_ranks_ = 1;
  std::vector<SavedTensor> tensors_;
};

// holds[rank][element]
std::vector<std::vector<bool>> table_of(const SavedTensor& tensor, int64_t num_ranks) {
  std::vector<std::vector<bool>> holds(static_cast<size_t>(num_ranks),
                                       std::vector<bool>(static_cast<size_t>(tensor.num_elements)));
  for (const Holder& holder : tensor.holders)
    for (const Extent& extent : to_extents(holder.pattern))
      for (int64_t element = extent.global_begin; element < extent.global_begin + extent.count; ++element)
        holds[static_cast<size_t>(holder.rank)][static_cast<size_t>(element)] = true;
  return holds;
}

TEST(SavePlan, EveryElementIsWrittenOnceByARankThatGetsItFromOneThatHoldsIt) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    RandomJob job(seed);
    const int64_t block_bytes = job.block_bytes();
    const std::vector<PlannedBlock> blocks = plan_save(job.tensors(), job.num_ranks(), block_bytes);
    std::vector<std::vector<int>> written;
    std::vector<std::vector<std::vector<bool>>> tables;
    std::vector<std::vector<Replicas>> replicas;
    for (const SavedTensor& tensor : job.tensors()) {
      written.emplace_back(tensor.num_elements, 0);
      tables.push_back(table_of(tensor, job.num_ranks()));
      replicas.push_back(replicas_of(tensor));
    }
    for (const PlannedBlock& block : blocks) {
      const auto number = static_cast<size_t>(block.tensor);
      const SavedTensor& tensor = job.tensors()[number];
      ASSERT_TRUE(0 < block.count && block.count * tensor.element_bytes <= block_bytes) << "seed " << seed;
      ASSERT_TRUE(0 <= block.owner && block.owner < job.num_ranks()) << "seed " << seed;
      const std::vector<std::vector<bool>>& holds = tables[number];
      const std::vector<bool>& own = holds[static_cast<size_t>(block.owner)];
      int64_t position = block.begin;
      for (const Piece& piece : pieces_of(block, replicas[number])) {
        ASSERT_EQ(piece.begin, position) << "seed " << seed << " " << tensor.name;
        for (auto element = static_cast<size_t>(position); element < static_cast<size_t>(position + piece.count);
             ++element) {
          ASSERT_TRUE(holds[static_cast<size_t>(piece.source)][element]) << "seed " << seed << " element " << element;
          ASSERT_EQ(own[element], piece.source == block.owner) << "seed " << seed << " element " << element;
          ++written[number][element];
        }
        position += piece.count;
      }
      ASSERT_EQ(position, block.begin + block.count) << "seed " << seed;
    }
    for (const auto& counts : written)
      ASSERT_EQ(std::count(counts.begin(), counts.end(), 1), std::ssize(counts)) << "seed " << seed;
  }
}

TEST(SavePlan, NoWriterHasMoreThanTwoOfTheLongestBlocksMoreThanAnother) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    RandomJob job(seed);
    const std::vector<PlannedBlock> blocks = plan_save(job.tensors(), job.num_ranks(), job.block_bytes());
    int64_t longest = 0;
    std::vector<int64_t> expected(static_cast<size_t>(job.num_ranks()), 0);
    for (const PlannedBlock& block : blocks) {
      const int64_t bytes = block.count * job.tensors()[static_cast<size_t>(block.tensor)].element_bytes;
      expected[static_cast<size_t>(block.owner)] += bytes;
      longest = std::max(longest, bytes);
    }
    EXPECT_EQ(bytes_by_owner(job.tensors(), blocks, job.num_ranks()), expected);
    const auto [least, most] = std::minmax_element(expected.begin(), expected.end());
    EXPECT_LE(*most - *least, 2 * longest) << "seed " << seed;
  }
}

// Four replicas of everything: nobody has to be given anything.
TEST(SavePlan, ReplicasShareTheWorkWithoutAnExchange) {
  std::vector<SavedTensor> tensors;
  for (int i = 0; i < 7; ++i) {
    tensors.push_back({.name = std::to_string(i), .num_elements = 1000, .element_bytes = 4, .holders = {}});
    for (int64_t rank = 0; rank < 4; ++rank) tensors.back().holders.push_back({rank, {{0, 1000, 1}}});
  }
  const std::vector<PlannedBlock> blocks = plan_save(tensors, 4, 400);
  EXPECT_EQ(bytes_by_owner(tensors, blocks, 4), (std::vector<int64_t>{7200, 7200, 6800, 6800}));
  for (const PlannedBlock& block : blocks)
    EXPECT_EQ(pieces_of(block, replicas_of(tensors[static_cast<size_t>(block.tensor)])),
              (std::vector<Piece>{{block.owner, block.begin, block.count}}));
}

// What replicas have to give is asked of each in turn.
TEST(SavePlan, SourcesAreTakenInTurn) {
  SavedTensor tensor{.name = "t", .num_elements = 60, .element_bytes = 1, .holders = {}};
  for (int64_t rank = 1; rank < 4; ++rank) tensor.holders.push_back({rank, {{0, 60, 1}}});
  std::vector<int64_t> given(4, 0);
  for (int64_t begin = 0; begin < 60; begin += 10)
    for (const Piece& piece : pieces_of({.tensor = 0, .begin = begin, .count = 10, .owner = 0}, replicas_of(tensor)))
      given[static_cast<size_t>(piece.source)] += piece.count;
  EXPECT_EQ(given, (std::vector<int64_t>{0, 20, 20, 20}));
}

TEST(SavePlan, AnElementThatNobodyHoldsIsOurBug) {
  const SavedTensor tensor{
      .name = "t", .num_elements = 10, .element_bytes = 1, .holders = {{0, {{0, 4, 1}, {1, 5, 1}}}}};
  const auto blocks = plan_save({tensor}, 1, 64);
  EXPECT_THROW(pieces_of(blocks[0], replicas_of(tensor)), InternalError);
}

TEST(ExtentPattern, ComesBackAndIsShortForColumns) {
  const spec::ParamSpec spec{.name = "w",
                             .shape = {1001, 12},
                             .tensor_placement = spec::Placement::split(1, {12}, 4),
                             .depth = 1,
                             .init = {},
                             .weight_decay = true};
  for (const int64_t rank : {0, 1, 2, 3}) {
    const std::vector<Extent> extents = spec::local_extents(spec, {4, rank});
    const ExtentPattern pattern = to_pattern(extents);
    EXPECT_LE(pattern.size(), 2u);
    EXPECT_EQ(to_extents(pattern), extents);
    EXPECT_EQ(num_elements(pattern), rank < 3 ? 4004 : 0);
  }
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const RandomJob job(seed);
    for (const SavedTensor& tensor : job.tensors())
      for (const Holder& holder : tensor.holders) {
        const std::vector<Extent> extents = to_extents(holder.pattern);
        EXPECT_EQ(to_pattern(extents), holder.pattern);
        int64_t local = 0;
        for (const Extent& extent : extents) {
          EXPECT_EQ(extent.local_begin, local);
          local += extent.count;
        }
        EXPECT_EQ(num_elements(holder.pattern), local);
      }
  }
}

// Runs that go back in the global tensor, as local order need not be global order.
TEST(ExtentPattern, KeepsLocalOrder) {
  const std::vector<Extent> extents = {{50, 0, 5}, {0, 5, 3}, {20, 8, 3}};
  EXPECT_EQ(to_extents(to_pattern(extents)), extents);
  EXPECT_THROW(to_pattern({{0, 0, 5}, {9, 6, 1}}), InternalError) << "a hole in the local tensor";
}

TEST(LoadPlan, TheBlocksThatAreReadAreThoseThatOverlapAndEveryElementFindsItsPlace) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    RandomJob job(seed);
    std::mt19937 random(seed);
    for (const SavedTensor& tensor : job.tensors()) {
      std::vector<StoredRange> blocks;
      for (int64_t begin = 0; begin < tensor.num_elements; begin += blocks.back().count)
        blocks.push_back(
            {begin, std::min<int64_t>(tensor.num_elements - begin, 1 + static_cast<int64_t>(random() % 300))});
      for (const Holder& holder : tensor.holders) {
        const std::vector<Extent> extents = to_extents(holder.pattern);
        std::vector<int64_t> local(static_cast<size_t>(num_elements(holder.pattern)), -1), expected;
        std::vector<bool> touched(blocks.size(), false);
        for (const Extent& extent : extents)
          for (int64_t element = extent.global_begin; element < extent.global_begin + extent.count; ++element) {
            expected.push_back(element);
            for (size_t block = 0; block < blocks.size(); ++block)
              if (blocks[block].begin <= element && element < blocks[block].begin + blocks[block].count)
                touched[block] = true;
          }
        std::vector<bool> read(blocks.size(), false);
        for (const BlockRead& found : plan_load(extents, blocks)) {
          ASSERT_FALSE(read[found.block]) << "seed " << seed;
          read[found.block] = true;
          for (const BlockCopy& copy : found.copies)
            for (int64_t i = 0; i < copy.count; ++i)
              local[static_cast<size_t>(copy.to + i)] = blocks[found.block].begin + copy.from + i;
        }
        ASSERT_EQ(read, touched) << "seed " << seed;
        ASSERT_EQ(local, expected) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace espalier::plan
