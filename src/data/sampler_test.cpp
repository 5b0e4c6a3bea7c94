#include "data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace espalier::data {
namespace {

std::vector<int64_t> samples_of(SamplerKind kind, const SamplerLayout& layout, int64_t consumed) {
  return make_sampler(kind, layout)->micro_batch(consumed);
}

TEST(SequentialSampler, RanksTakeConsecutiveSlicesOfEachMicroBatch) {
  const auto samples = [](int64_t consumed, int64_t rank) {
    return samples_of(SamplerKind::kSequential, {100, 3, rank, 2}, consumed);
  };
  EXPECT_EQ(samples(0, 0), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(samples(0, 1), (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(samples(6, 0), (std::vector<int64_t>{6, 7, 8}));
  EXPECT_EQ(samples(94, 1), (std::vector<int64_t>{97, 98, 99}));
}

TEST(SequentialSampler, EndOfTheDataIsSaidWithNumbers) {
  try {
    samples_of(SamplerKind::kSequential, {100, 3, 0, 2}, 95);
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "the data end: 95 of 100 samples are consumed and the next micro-batch takes 6 (micro-batch 3 x 2 "
                 "data-parallel ranks). Ask for more samples with --train-samples or --train-iters.");
  }
}

TEST(SequentialSampler, StartsAgainWhereItMay) {
  SamplerLayout layout{5, 3, 1, 2};
  layout.starts_again = true;
  EXPECT_EQ(samples_of(SamplerKind::kSequential, layout, 0), (std::vector<int64_t>{3, 4, 0}));
  EXPECT_EQ(samples_of(SamplerKind::kSequential, layout, 12), (std::vector<int64_t>{0, 1, 2}));
}

TEST(Sampler, DataSetSmallerThanAMicroBatchIsRefused) {
  EXPECT_THROW(make_sampler(SamplerKind::kSequential, {5, 3, 0, 2}), UserError);
  EXPECT_THROW(make_sampler(SamplerKind::kCyclic, {5, 3, 0, 2}), UserError);
}

// 23 samples, micro-batch 5 on 2 ranks: 20 are read each epoch, 10 by each rank; torch.randperm(10) with seed 0 starts
// 4 1 7 5 3 9 and with seed 1 (the second epoch) 5 6 1 2 0 8.
TEST(CyclicSampler, EveryRankPermutesItsPartBySeedOfTheEpoch) {
  const auto samples = [](int64_t consumed, int64_t rank) {
    return samples_of(SamplerKind::kCyclic, {23, 5, rank, 2}, consumed);
  };
  EXPECT_EQ(samples(0, 0), (std::vector<int64_t>{4, 1, 7, 5, 3}));
  EXPECT_EQ(samples(0, 1), (std::vector<int64_t>{14, 11, 17, 15, 13}));
  EXPECT_EQ(samples(10, 0).front(), 9);
  EXPECT_EQ(samples(20, 0), (std::vector<int64_t>{5, 6, 1, 2, 0}));
  EXPECT_EQ(samples(30, 1).front(), 18);
}

TEST(CyclicSampler, OneObjectCrossesEpochsAsFreshOnesDo) {
  const SamplerLayout layout{23, 2, 1, 2};
  const std::unique_ptr<Sampler> sampler = make_sampler(SamplerKind::kCyclic, layout);
  for (int64_t consumed = 0; consumed < 100; consumed += 4)
    EXPECT_EQ(sampler->micro_batch(consumed), samples_of(SamplerKind::kCyclic, layout, consumed));
}

TEST(CyclicSampler, ConsumedSamplesOfAnotherLayoutAreRefused) {
  try {
    samples_of(SamplerKind::kCyclic, {23, 5, 0, 2}, 26);
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("not whole micro-batches of 10 (micro-batch 5 x 2 data-parallel ranks)"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace espalier::data
