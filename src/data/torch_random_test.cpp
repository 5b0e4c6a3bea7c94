#include "data/torch_random.h"

#include <gtest/gtest.h>

namespace espalier::data {
namespace {

std::vector<int64_t> head(std::vector<int64_t> values, size_t count) {
  values.resize(count);
  return values;
}

// Expected: torch 2.11.0, torch.randperm(n, generator=torch.Generator().manual_seed(seed)).
TEST(TorchRandperm, GivesTorchsPermutation) {
  EXPECT_EQ(head(torch_randperm(10, 0), 6), (std::vector<int64_t>{4, 1, 7, 5, 3, 9}));
  EXPECT_EQ(head(torch_randperm(10, 1), 6), (std::vector<int64_t>{5, 6, 1, 2, 0, 8}));
  EXPECT_EQ(head(torch_randperm(1000, 7), 6), (std::vector<int64_t>{615, 284, 599, 580, 347, 92}));
}

TEST(TorchRandperm, OfNothingAndOfOne) {
  EXPECT_TRUE(torch_randperm(0, 3).empty());
  EXPECT_EQ(torch_randperm(1, 3), std::vector<int64_t>{0});
}

}  // namespace
}  // namespace espalier::data
