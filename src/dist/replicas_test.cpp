// Copies on eight forked ranks, some of them wrong.
#include "dist/replicas.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/format.h"
#include "dist/local_ranks.h"

namespace espalier::dist {
namespace {
namespace replicas_test {

constexpr spec::GridShape kGrid{.tensor = 2, .data = 2, .pipeline = 2};  // rank = 4 pipeline + 2 data + tensor
constexpr int64_t kManyElements = 700'001;                               // elements: several blocks, and a part of one

// Equal wherever copies must be equal, and nowhere else by chance.
std::vector<Copy> healthy(const Grid& grid) {
  const auto p = static_cast<double>(grid.position.pipeline), t = static_cast<double>(grid.position.tensor);
  const at::Tensor split = at::full({kManyElements}, 1 + 10 * p + t, at::kFloat);
  const at::Tensor norm = at::full({7}, 2 + 10 * p, at::kBFloat16);
  const at::Tensor tied = at::full({33, 3}, 3 + t, at::kFloat);
  const at::Tensor own = at::full({5}, static_cast<double>(grid.rank), at::kFloat);
  const at::Tensor step = at::full({1}, 12, at::kLong), rate = at::full({1}, 0.1, at::kDouble);
  return {{"split", split, {.gradient = true}},
          {"norm", norm, {.gradient = true, .tensor = true}},
          {"tied", tied, {.gradient = true, .stages = {0, 1}}},
          {"own", own, {}},
          {"empty", at::empty({0}), {.gradient = true}},
          {"step", step, kEveryRank},
          {"rate", rate, kEveryRank}};
}

// What the ranks say, each its own differences in words; and what a repair has not brought back.
template <class Damage>
std::vector<std::string> run(const Damage& damage) {
  return run_ranks(kGrid, [&](const Grid& grid) {
    const std::vector<Copy> copies = healthy(grid), expected = healthy(grid);
    damage(grid.rank, copies);
    const auto differences = find_differences(copies, grid);
    repair(copies, differences, grid);
    std::string wrong;
    for (size_t i = 0; i < copies.size(); ++i)
      if (!at::equal(copies[i].values, expected[i].values)) wrong += concat("\nwrong after repair: ", copies[i].name);
    return join(describe(differences), "\n") + wrong;
  });
}

void expect_on_all_ranks(const std::vector<std::string>& said, const std::string& expected) {
  for (size_t rank = 0; rank < said.size(); ++rank) EXPECT_EQ(said[rank], expected) << "rank " << rank;
}

TEST(Replicas, HealthyCopiesRaiseNothing) {
  expect_on_all_ranks(run([](int64_t, const std::vector<Copy>&) {}), "");
}

TEST(Replicas, LastElementOfALongTensorIsFound) {
  const auto said = run([](int64_t rank, const std::vector<Copy>& copies) {
    if (rank == 7) copies[0].values.view(at::kInt)[kManyElements - 1].add_(1);
  });
  expect_on_all_ranks(said, "rank 7 does not hold what rank 5 holds (no majority, rank 5 counts): split");
}

// Each pair that a wrong rank 0 belongs to is a tie that it would win.
TEST(Replicas, MajorityIsCountedOverAllAxesTogether) {
  const auto said = run([](int64_t rank, const std::vector<Copy>& copies) {
    if (rank == 0) {
      copies[1].values[6].add_(1);
      copies[2].values[32][2].add_(1);
    }
  });
  expect_on_all_ranks(said,
                      "rank 0 does not hold what ranks 1, 2, 3 hold (majority): norm\n"
                      "rank 0 does not hold what ranks 2, 4, 6 hold (majority): tied");
}

TEST(Replicas, NumbersAreShown) {
  const auto said = run([](int64_t rank, const std::vector<Copy>& copies) {
    if (rank == 3 || rank == 4) copies[5].values.add_(1);
    if (rank == 6) copies[6].values.fill_(0.25);
  });
  expect_on_all_ranks(said,
                      "ranks 3, 4 do not hold what ranks 0, 1, 2, 5, 6, 7 hold (majority): step (13, not 12)\n"
                      "rank 6 does not hold what ranks 0, 1, 2, 3, 4, 5, 7 hold (majority): rate (0.25, not 0.1)");
}

TEST(Replicas, ManyCopiesOfTheSameRanksAreOneSentence) {
  std::vector<CopyDifference> differences;
  for (int i = 0; i < 11; ++i)
    differences.push_back({.name = concat("w", i), .kept = {0, 2}, .others = {1}, .kept_value = "", .other_value = ""});
  EXPECT_EQ(
      describe(differences),
      std::vector<std::string>{"rank 1 does not hold what ranks 0, 2 hold (majority): w0, w1, w2, w3, w4, w5, w6, "
                               "w7 and 3 more"});
}

}  // namespace replicas_test
}  // namespace
}  // namespace espalier::dist
