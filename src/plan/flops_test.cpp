#include "plan/flops.h"

#include <gtest/gtest.h>

namespace espalier::plan {
namespace {

// Megatron: "the number of individual Transformer layers to recompute within each pipeline stage", and each virtual
// one.
TEST(Flops, BlockRecomputesSoManyLayersOfEveryPart) {
  const Recompute block{Recompute::Kind::kBlock, 2};
  EXPECT_EQ(num_recomputed_layers(block, partition_evenly(24, 1, 1)), 2);
  EXPECT_EQ(num_recomputed_layers(block, partition_evenly(24, 4, 1)), 8);
  EXPECT_EQ(num_recomputed_layers(block, partition_evenly(24, 4, 3)), 24);
  EXPECT_EQ(num_recomputed_layers(block, partition_by_counts({1, 5, 3})), 5);
  EXPECT_EQ(num_recomputed_layers({Recompute::Kind::kUniform, 3}, partition_evenly(24, 4, 1)), 24);
  EXPECT_EQ(num_recomputed_layers({}, partition_evenly(24, 4, 1)), 0);
}

}  // namespace
}  // namespace espalier::plan
