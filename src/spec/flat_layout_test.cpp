#include "spec/flat_layout.h"

#include <gtest/gtest.h>

namespace espalier::spec {
namespace {

ParamSpec spec_of(std::vector<int64_t> shape, int64_t depth, bool split) {
  ParamSpec spec;
  spec.shape = shape;
  spec.depth = depth;
  if (split) spec.tensor_placement = Placement::split(0, {shape[0]});
  return spec;
}

TEST(FlatLayout, ParametersBeginAtMultiplesOf32) {
  std::vector<ParamSpec> specs;
  for (const int64_t count : {1, 7, 33, 64, 0, 5}) specs.push_back(spec_of({count}, 0, true));
  const FlatLayout layout = flat_layout(specs, {});
  EXPECT_EQ(layout.offsets, (std::vector<int64_t>{0, 32, 64, 128, 192, 192}));
  EXPECT_EQ(layout.counts, (std::vector<int64_t>{1, 7, 33, 64, 0, 5}));
  EXPECT_EQ(layout.size, 224);
}

TEST(FlatLayout, WhatIsExchangedAlikeLiesTogether) {
  std::vector<ParamSpec> specs = {spec_of({10, 4}, 0, true), spec_of({4}, 1, false), spec_of({8, 4}, 1, true),
                                  spec_of({4}, 2, false), spec_of({8, 4}, 2, true)};
  specs[0].other_depths = {9};
  const FlatLayout layout = flat_layout(specs, {});
  EXPECT_EQ(layout.offsets, (std::vector<int64_t>{0, 64, 128, 96, 160}));
  ASSERT_EQ(layout.sections.size(), 4u);
  EXPECT_TRUE(layout.sections[0].is_shared);
  EXPECT_TRUE(layout.sections[1].replicated);
  EXPECT_EQ(layout.sections[1].depth, -1);
  EXPECT_EQ(layout.sections[2].depth, 1);
  EXPECT_EQ(layout.sections[3].depth, 2);
  EXPECT_TRUE(layout.sections[2].is_layer && !layout.sections[3].is_layer);
  EXPECT_EQ(layout.sections[1].params, (std::vector<size_t>{1, 3}));
  EXPECT_EQ(layout.section_of, (std::vector<size_t>{0, 1, 2, 1, 3}));
}

TEST(FlatLayout, SectionsDivideAmongSharers) {
  const FlatLayout layout = flat_layout({spec_of({33, 7}, 1, true), spec_of({1}, 2, true)}, {2, 1}, 3);
  EXPECT_EQ(layout.counts, (std::vector<int64_t>{112, 0}));
  ASSERT_EQ(layout.sections.size(), 2u);
  EXPECT_EQ(layout.sections[1].count(), 0) << "the second rank holds nothing of the second parameter";
  EXPECT_EQ(layout.size, 192);
}

TEST(FlatLayout, WhatTensorRanksUseForHeadsOfTheirOwnLiesBehindWhatTheyUseAlike) {
  std::vector<ParamSpec> specs = {spec_of({7}, 1, false), spec_of({4}, 1, false), spec_of({8, 4}, 1, true),
                                  spec_of({7}, 2, false), spec_of({4}, 2, false)};
  specs[1].use_is_split = specs[4].use_is_split = true;
  const FlatLayout layout = flat_layout(specs, {});
  ASSERT_EQ(layout.sections.size(), 3u);
  EXPECT_EQ(layout.sections[0].params, (std::vector<size_t>{0, 3}));
  EXPECT_EQ(layout.sections[1].params, (std::vector<size_t>{1, 4}));
  EXPECT_TRUE(layout.sections[1].replicated && layout.sections[1].use_is_split && !layout.sections[0].use_is_split);
  EXPECT_FALSE(layout.sections[2].replicated);
}

// Vocabularies that do not divide make ranks differ in size, but not in where the replicated parameters are.
TEST(FlatLayout, ReplicatedSectionsAreTheSameOnAllTensorRanks) {
  const std::vector<ParamSpec> specs = {spec_of({33, 4}, 0, true), spec_of({7}, 1, false), spec_of({1}, 2, false)};
  const FlatLayout first = flat_layout(specs, {2, 0}), second = flat_layout(specs, {2, 1});
  EXPECT_NE(first.size, second.size);
  EXPECT_EQ(first.offsets, second.offsets);
  EXPECT_TRUE(first.sections[0].replicated && second.sections[0].replicated);
  EXPECT_EQ(first.sections[0].end, second.sections[0].end);
}

// Used at the same other depth, but with homes of their own: a stage may hold the one and not the other.
TEST(FlatLayout, ParametersThatOtherDepthsShareLieApartByTheirOwnDepth) {
  std::vector<ParamSpec> specs = {spec_of({64}, 0, false), spec_of({64}, 3, false)};
  for (ParamSpec& spec : specs) spec.other_depths = {5};
  const FlatLayout layout = flat_layout(specs, {1, 0});
  ASSERT_EQ(layout.sections.size(), 2U);
  for (const FlatSection& section : layout.sections) EXPECT_TRUE(section.is_shared && !section.is_layer);
}

}  // namespace
}  // namespace espalier::spec
