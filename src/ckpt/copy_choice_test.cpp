#include "ckpt/copy_choice.h"

#include <gtest/gtest.h>

namespace espalier::ckpt {
namespace copy_choice_test {

using launch::SlotsOf;

HeldCopy own(int64_t holder, int64_t step, uint64_t identity) {
  return {.holder = holder,
          .slots = SlotsOf::kRank,
          .slot = static_cast<int>(step % 2),
          .step = step,
          .identity = identity};
}
HeldCopy of_peer(int64_t holder, int64_t step, uint64_t identity) {
  HeldCopy copy = own(holder, step, identity);
  copy.slots = SlotsOf::kPeer;
  return copy;
}

TEST(CopyChoice, IsTheNewestStepOfWhichEveryRanksCopyExists) {
  const std::vector<HeldCopy> held = {own(0, 7, 10), own(0, 6, 10), own(1, 6, 11), own(1, 5, 11)};
  const auto choice = choose_copies(held, {10, 11});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->step, 6);
  EXPECT_EQ(choice->of_ranks, (std::vector<HeldCopy>{own(0, 6, 10), own(1, 6, 11)}));
  EXPECT_FALSE(choose_copies({own(0, 7, 10), own(1, 6, 11)}, {10, 11}));
  EXPECT_FALSE(choose_copies({}, {10}));
}

TEST(CopyChoice, AMachineWithoutMemoryIsServedByThoseThatHoldItsCopies) {
  const std::vector<HeldCopy> held = {own(0, 8, 10), own(0, 9, 10), of_peer(0, 8, 11)};
  const auto choice = choose_copies(held, {10, 11});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->step, 8);
  EXPECT_EQ(choice->of_ranks, (std::vector<HeldCopy>{own(0, 8, 10), of_peer(0, 8, 11)}));
}

// Machines are numbered by their names: another name in their midst changes who is which rank.
TEST(CopyChoice, CopiesAreFoundWhereverTheirRankIsNow) {
  const std::vector<HeldCopy> held = {own(0, 4, 10), of_peer(0, 4, 12), own(1, 4, 12), of_peer(1, 4, 11)};
  const auto choice = choose_copies(held, {10, 11, 12});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->of_ranks, (std::vector<HeldCopy>{own(0, 4, 10), of_peer(1, 4, 11), of_peer(0, 4, 12)}));
}

TEST(CopyChoice, ReplicasHoldTheSameAndOneIsEnough) {
  const auto choice = choose_copies({own(2, 3, 10), own(3, 3, 11)}, {10, 11, 10, 11});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->of_ranks, (std::vector<HeldCopy>{own(2, 3, 10), own(3, 3, 11), own(2, 3, 10), own(3, 3, 11)}));
}

TEST(CopyChoice, CopiesPassThroughText) {
  const std::vector<HeldCopy> held = {own(0, 7, ~uint64_t{0}), of_peer(12, 1'000'000'000'000, 0)};
  EXPECT_EQ(copies_from_text(to_text(held)), held);
  EXPECT_TRUE(copies_from_text("").empty());
}

}  // namespace copy_choice_test
}  // namespace espalier::ckpt
