#include "data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace espalier::data {
namespace {

std::vector<int64_t> samples_of(Sampler sampler, int64_t first, int64_t count) {
  std::vector<int64_t> samples;
  for (int64_t place = first; place < first + count; ++place) samples.push_back(sampler.sample(place));
  return samples;
}

TEST(SequentialSampler, StartsAgainAfterTheLastSample) {
  EXPECT_EQ(samples_of(Sampler::sequential(5), 3, 6), (std::vector<int64_t>{3, 4, 0, 1, 2, 3}));
  EXPECT_EQ(Sampler::sequential(5).description(), "single");
}

TEST(SequentialSampler, OfNoneCanBeMadeAndNotRead) {
  Sampler sampler = Sampler::sequential(0);
  EXPECT_THROW(sampler.sample(0), InternalError);
}

// 23 samples, micro-batch 5 on 2 ranks: 20 are read each epoch, 10 by each rank; torch.randperm(10) with seed 0 starts
// 4 1 7 5 3 9 and with seed 1 (the second epoch) 5 6 1 2 0 8.
TEST(CyclicSampler, EveryRankPermutesItsPartBySeedOfTheEpoch) {
  const auto samples = [](int64_t first, int64_t count) {
    return samples_of(Sampler::cyclic(23, {.micro_batch_size = 5, .data_parallel_size = 2}), first, count);
  };
  EXPECT_EQ(samples(0, 5), (std::vector<int64_t>{4, 1, 7, 5, 3}));       // the first rank's micro-batch
  EXPECT_EQ(samples(5, 5), (std::vector<int64_t>{14, 11, 17, 15, 13}));  // the second's
  EXPECT_EQ(samples(10, 1).front(), 9);
  EXPECT_EQ(samples(20, 5), (std::vector<int64_t>{5, 6, 1, 2, 0}));
  EXPECT_EQ(samples(35, 1).front(), 18);
}

// torch.randperm(10) of seeds 0 and 1, as above: one part, of which every sample is read in every epoch.
TEST(CyclicSampler, WithoutALayoutTheWholeSetIsShuffledEveryEpoch) {
  std::vector<int64_t> all(10);
  std::iota(all.begin(), all.end(), 0);
  for (const int64_t epoch : {0, 1, 2}) {
    std::vector<int64_t> samples = samples_of(Sampler::cyclic(10, {}), 10 * epoch, 10);
    const std::vector<int64_t> start = {samples.begin(), samples.begin() + 6};
    const std::vector<int64_t> starts[] = {{4, 1, 7, 5, 3, 9}, {5, 6, 1, 2, 0, 8}, start};
    EXPECT_EQ(start, starts[epoch]);
    std::sort(samples.begin(), samples.end());
    EXPECT_EQ(samples, all);
  }
}

// Backwards as forwards: what was asked before does not count.
TEST(CyclicSampler, APlaceHoldsOneSampleWhateverWasReadBefore) {
  const CyclicLayout layout{.micro_batch_size = 2, .data_parallel_size = 2};
  Sampler kept = Sampler::cyclic(23, layout);
  for (const int64_t place : {70, 3, 19, 20, 21, 0, 41, 40, 69})
    EXPECT_EQ(kept.sample(place), Sampler::cyclic(23, layout).sample(place)) << place;
}

TEST(CyclicSampler, DataSetSmallerThanATurnIsRefused) {
  try {
    Sampler::cyclic(5, {.micro_batch_size = 3, .data_parallel_size = 2});
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "the data set has 5 samples and --cyclic-layout 3 2 takes 6 at a time. Give the set more documents, "
                 "or leave --cyclic-layout out.");
  }
  EXPECT_EQ(Sampler::cyclic(6, {.micro_batch_size = 3, .data_parallel_size = 2}).description(),
            "cyclic 3 x 2 of 6 samples");
}

}  // namespace
}  // namespace espalier::data
