#include "train/loader.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace espalier::train {
namespace loader_test {

constexpr int64_t kLength = 63;

const data::GptDataset& dataset() {
  static const data::GptDataSets sets = [] {
    data::DataSetOptions options;
    options.data_path = {"tests/data/owt-20_text_document"};
    options.split = "100,0,0";
    options.sequence_length = kLength;
    options.train_samples = 7;
    return data::GptDataSets::open(options);
  }();
  return *sets.train;
}

// What the data set holds under these numbers: the inputs of each sample.
std::vector<int64_t> inputs_of(const std::vector<int64_t>& samples) {
  std::vector<int64_t> inputs, ids(kLength + 1);
  for (const int64_t sample : samples) {
    dataset().sample(sample, ids);
    inputs.insert(inputs.end(), ids.begin(), ids.end() - 1);
  }
  return inputs;
}

std::vector<int64_t> ids_in(const tensor::Batch& batch) {
  const at::Tensor ids = batch.ids.contiguous();
  return {ids.data_ptr<int64_t>(), ids.data_ptr<int64_t>() + ids.numel()};
}

TEST(Loader, TakesTheSamplesOfTheRunInOrder) {
  const int64_t size = dataset().size();
  const Loader second(dataset(), {}, 5000, {.number = 1, .count = 2});
  const auto batches = second.read(/*first=*/12, /*num_micro_batches=*/2, /*micro_batch_size=*/3);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[0].sample_numbers, (std::vector<int64_t>{15, 16, 17}));
  EXPECT_EQ(ids_in(batches[0]), inputs_of({15, 16, 17}));
  EXPECT_EQ(ids_in(batches[1]), inputs_of({21, 22, 23}));
  const auto again = second.read(size, 1, 1);  // behind the last sample the first comes again
  EXPECT_EQ(again[0].sample_numbers, std::vector<int64_t>{size + 1});
  EXPECT_EQ(ids_in(again[0]), inputs_of({1}));
}

// Expected: the sampler, which is compared with upstream's own in the data library.
TEST(Loader, TakesTheSamplesOfTheCyclicOrderAndNumbersThemByTheRun) {
  const int64_t size = dataset().size(), epoch = size - size % 4;
  for (const int64_t rank : {0, 1}) {
    const Loader loader(dataset(), {}, 5000, {.number = rank, .count = 2}, data::SamplerKind::kCyclic);
    const auto sampler = data::make_sampler(data::SamplerKind::kCyclic, {size, 2, rank, 2});
    for (const int64_t first : {int64_t{0}, int64_t{8}, epoch - 4, epoch}) {
      const auto batches = loader.read(first, 2, 2);
      for (const int64_t micro_batch : {0, 1}) {
        const int64_t consumed = first + 4 * micro_batch;
        const tensor::Batch& batch = batches[static_cast<size_t>(micro_batch)];
        EXPECT_EQ(ids_in(batch), inputs_of(sampler->micro_batch(consumed))) << rank << " " << consumed;
        EXPECT_EQ(batch.sample_numbers, (std::vector<int64_t>{consumed + 2 * rank, consumed + 2 * rank + 1}));
      }
    }
  }
}

TEST(Loader, RefusesACyclicOrderThatDoesNotFitTheLayout) {
  const Loader loader(dataset(), {}, 5000, {.number = 0, .count = 2}, data::SamplerKind::kCyclic);
  EXPECT_THROW(loader.read(1, 1, 2), UserError);
  const Loader large(dataset(), {}, 5000, {.number = 0, .count = 1000}, data::SamplerKind::kCyclic);
  EXPECT_THROW(large.read(0, 1, 2), UserError);
}

}  // namespace loader_test
}  // namespace espalier::train
