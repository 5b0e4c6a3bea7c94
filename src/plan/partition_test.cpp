#include "plan/partition.h"

#include <gtest/gtest.h>

#include <numeric>

namespace espalier::plan {
namespace {

using Counts = std::vector<int64_t>;
using Words = std::vector<std::string>;

// Layers of each stage, or of each part in order of depth.
Counts counts_of(const Partition& partition) {
  Counts counts;
  for (int64_t chunk = 0; chunk < partition.num_chunks; ++chunk)
    for (int64_t stage = 0; stage < partition.num_stages; ++stage)
      counts.push_back(partition.layers(stage, chunk).count());
  return counts;
}

Counts divide(const std::string& method, int64_t num_layers, int64_t num_stages, const PartWeights& weights = {}) {
  Problems problems;
  const auto partition = make_partition(
      {.method = method, .num_layers = num_layers, .num_stages = num_stages, .weights = weights}, problems);
  EXPECT_EQ(problems.messages(), Words{});
  return partition ? counts_of(*partition) : Counts{};
}

std::string refusal(const std::string& method, int64_t num_layers, int64_t num_stages, int64_t num_chunks = 1,
                    const PartWeights& weights = {}) {
  Problems problems;
  const auto partition = make_partition({.method = method,
                                         .num_layers = num_layers,
                                         .num_stages = num_stages,
                                         .num_chunks = num_chunks,
                                         .weights = weights,
                                         .method_origin = "METHOD"},
                                        problems);
  EXPECT_FALSE(partition.has_value());
  EXPECT_EQ(problems.messages().size(), 1U);
  return problems.empty() ? "" : problems.messages()[0];
}

// Weights of DeepSpeed's list of items: 3 before the layers, 4 after them; ones at the places named.
std::vector<double> items(int64_t num_layers, bool with_embeddings) {
  std::vector<double> weights(static_cast<size_t>(num_layers) + 7, 0);
  std::fill(weights.begin() + 3, weights.end() - 4, 1);
  if (with_embeddings) weights[1] = weights[weights.size() - 2] = 1;
  return weights;
}

// Printed by deepspeed.runtime.utils.partition_balanced of DeepSpeed 0.19.8.
TEST(Partition, BoundariesAreThoseOfDeepSpeed) {
  EXPECT_EQ(balanced_boundaries(items(4, false), 2), (Counts{0, 5, 11}));
  EXPECT_EQ(balanced_boundaries(items(8, false), 4), (Counts{0, 5, 7, 9, 15}));
  EXPECT_EQ(balanced_boundaries(items(6, false), 4), (Counts{0, 5, 7, 8, 13}));
  EXPECT_EQ(balanced_boundaries(items(24, false), 4), (Counts{0, 9, 15, 21, 31}));
  EXPECT_EQ(balanced_boundaries(items(70, true), 12), (Counts{0, 8, 14, 20, 26, 32, 38, 44, 50, 56, 62, 68, 77}));
  EXPECT_EQ(uniform_boundaries(31, 4), (Counts{0, 8, 16, 24, 31}));
  EXPECT_EQ(balanced_boundaries({1, 1}, 3), (Counts{0, 1, 2, 2}));
}

TEST(Partition, BloomsSeventyLayersLeaveRoomForTheEmbeddings) {
  EXPECT_EQ(divide("type:transformer|embedding", 70, 12), (Counts{5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 5}));
}

TEST(Partition, MethodsDivideLayers) {
  EXPECT_EQ(divide("", 24, 4), (Counts{6, 6, 6, 6}));
  EXPECT_EQ(divide("", 6, 4), (Counts{2, 2, 1, 1}));
  EXPECT_EQ(divide("type:TRANSFORMER", 6, 4), (Counts{2, 2, 1, 1}));
  EXPECT_EQ(divide("uniform", 24, 4), (Counts{5, 8, 8, 3}));
  EXPECT_EQ(divide("list:5,6,6,5", 22, 4), (Counts{5, 6, 6, 5}));
  EXPECT_EQ(divide("", 7, 1), Counts{7});
  // An embedding as heavy as three layers: 50 parameters for every stage.
  EXPECT_EQ(divide("parameters", 14, 4, {.embedding = 30, .layer = 10, .final_norm = 0, .output = 30}),
            (Counts{2, 5, 5, 2}));
}

TEST(Partition, CoversEveryDepthOnce) {
  const Partition partition = partition_by_counts({2, 1, 3});
  EXPECT_EQ(partition.part(0, 0), (DepthRange{0, 3}));
  EXPECT_EQ(partition.part(1, 0), (DepthRange{3, 4}));
  EXPECT_EQ(partition.part(2, 0), (DepthRange{4, 8}));
  EXPECT_EQ(partition.layers(2, 0), (DepthRange{3, 6}));
  EXPECT_EQ(partition.stage_of(0), 0);
  EXPECT_EQ(partition.stage_of(7), 2);
}

TEST(Partition, ChunksGoRoundTheStages) {
  Problems problems;
  const auto partition = make_partition({.num_layers = 8, .num_stages = 2, .num_chunks = 2, .weights = {}}, problems);
  ASSERT_TRUE(partition.has_value());
  EXPECT_EQ(partition->layers(0, 0), (DepthRange{0, 2}));
  EXPECT_EQ(partition->layers(1, 0), (DepthRange{2, 4}));
  EXPECT_EQ(partition->layers(0, 1), (DepthRange{4, 6}));
  EXPECT_EQ(partition->part(1, 1), (DepthRange{7, 10}));
}

TEST(Partition, WhatCannotWorkIsRefusedWithTheNearestThatCan) {
  EXPECT_EQ(refusal("list:5,6,6", 22, 4), "METHOD is for 3 stages, but the pipeline has 4; use list:6,6,5,5");
  EXPECT_EQ(refusal("list:5,6,6,6", 22, 4), "METHOD adds up to 23 layers, but the model has 22; use list:5,6,6,5");
  EXPECT_EQ(refusal("list:9,9,9,1", 22, 4), "METHOD adds up to 28 layers, but the model has 22; use list:6,6,5,5");
  EXPECT_EQ(refusal("list:5,,6,6", 22, 4), "METHOD: '' is not a number of layers from 1 to 22; use list:6,6,5,5");
  EXPECT_EQ(refusal("even", 22, 4),
            "METHOD is not known; use type:transformer, type:transformer|embedding, uniform, parameters or "
            "list:6,6,5,5");
  EXPECT_EQ(refusal("type:(", 22, 4), "METHOD: '(' is not a regular expression; use type:transformer|embedding");
  EXPECT_EQ(refusal("type:conv", 22, 4),
            "METHOD: 'conv' matches none of EmbeddingPipe, ParallelTransformerLayerPipe, LayerNorm; use "
            "type:transformer or type:transformer|embedding");
  EXPECT_EQ(refusal("uniform", 4, 4), "METHOD leaves stage 0 of 4 without a transformer layer; use list:1,1,1,1");
  EXPECT_EQ(refusal("parameters", 4, 4, 1, {.embedding = 99, .layer = 1, .final_norm = 0, .output = 99}),
            "METHOD leaves stage 0 of 4 without a transformer layer; use list:1,1,1,1");
  EXPECT_EQ(refusal("list:2,2,2,2", 8, 2, 2),
            "METHOD: an interleaved pipeline has the same number of layers in each of its 4 parts; leave the option "
            "out, or --num-layers-per-virtual-pipeline-stage");
}

}  // namespace
}  // namespace espalier::plan
