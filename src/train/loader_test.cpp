#include "train/loader.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <thread>

#include "base/error.h"
#include "base/whereabouts.h"
#include "data/gpt_dataset.h"
#include "launch/hang_watch.h"
#include "models/gpt/batch.h"
#include "train/read_ahead.h"

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

models::Collate collate() {
  return [](const std::vector<models::SampleRow>& rows) { return models::make_gpt_batch(rows, {}); };
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
  const Loader second(dataset(), collate(), 5000, {.number = 1, .count = 2});
  const auto batches = second.read(/*first=*/12, /*num_micro_batches=*/2, /*micro_batch_size=*/3);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[0].sample_numbers, (std::vector<int64_t>{15, 16, 17}));
  EXPECT_EQ(ids_in(batches[0]), inputs_of({15, 16, 17}));
  EXPECT_EQ(ids_in(batches[1]), inputs_of({21, 22, 23}));
  const auto again = second.read(size, 1, 1);  // after the last sample the first comes again
  EXPECT_EQ(again[0].sample_numbers, std::vector<int64_t>{size + 1});
  EXPECT_EQ(ids_in(again[0]), inputs_of({1}));
}

// Expected: the sampler, which is compared with upstream's own in the data library. Whoever reads, in micro-batches of
// whatever size, place n of the run is the same sample; 6 samples a step do not divide the epoch.
TEST(Loader, ReadsTheSameCyclicSamplesInEveryLayout) {
  const int64_t size = dataset().size();
  for (const data::CyclicLayout& order : {data::CyclicLayout{}, data::CyclicLayout{2, 4}}) {
    data::Sampler sampler = data::Sampler::cyclic(size, order);
    for (const auto& [replicas, micro_batch_size] : {std::pair{1, 1}, {1, 6}, {2, 3}, {3, 1}, {6, 1}}) {
      const int64_t num_micro_batches = 6 / (replicas * micro_batch_size);
      for (int64_t first = 0; first < 2 * size; first += 6)
        for (int64_t rank = 0; rank < replicas; ++rank) {
          const Loader loader(dataset(), collate(), 5000, {.number = rank, .count = replicas}, order);
          for (const tensor::Batch& batch : loader.read(first, num_micro_batches, micro_batch_size)) {
            std::vector<int64_t> expected;
            for (const int64_t place : batch.sample_numbers) expected.push_back(sampler.sample(place));
            EXPECT_EQ(ids_in(batch), inputs_of(expected)) << replicas << " x " << micro_batch_size << " " << first;
          }
        }
    }
  }
}

TEST(Loader, RefusesADataSetThatIsTooSmallForTheCyclicOrder) {
  EXPECT_THROW(
      Loader(dataset(), collate(), 5000, {}, data::CyclicLayout{.micro_batch_size = 2, .data_parallel_size = 1000}),
      UserError);
}

// -7 in an int32 store: as an unsigned number it would be above the vocabulary, as a signed one below.
TEST(Loader, RefusesIdsThatTheVocabularyDoesNotHave) {
  const std::string prefix = (std::filesystem::temp_directory_path() / concat("espalier-loader-", ::getpid())).string();
  for (const int32_t bad : {-7, 5000, 4999}) {
    data::TokenStoreWriter writer(prefix, data::TokenType::kInt32);
    std::vector<int32_t> ids(200, 3);
    ids[130] = bad;
    writer.add_sequence(ids);
    writer.end_document();
    writer.finish();
    data::DataSetOptions options;
    options.data_path = {prefix}, options.split = "100,0,0";
    options.sequence_length = 49, options.train_samples = 3;
    const data::GptDataSets sets = data::GptDataSets::open(options);
    const Loader loader(*sets.train, collate(), 5000, {});
    std::string error;
    try {
      loader.read(0, 4, 1);
    } catch (const UserError& refused) {
      error = refused.what();
      EXPECT_EQ(refused.code(), ExitCode::kBadData);
    }
    EXPECT_EQ(error.find(concat("holds token id ", bad, "; expected 0 to 4999")) != std::string::npos, bad != 4999)
        << error;
  }
  for (const char* ending : {".idx", ".bin"}) std::filesystem::remove(prefix + ending);
}

// Whatever was begun, what is asked for comes.
TEST(ReadAhead, GivesWhatTheLoaderReads) {
  const Loader loader(dataset(), collate(), 5000, {.number = 1, .count = 2});
  ReadAhead ahead(loader);
  const auto expect = [&](const ReadAhead::Request& request, const std::vector<int64_t>& samples) {
    const auto batches = ahead.read(request);
    ASSERT_EQ(batches.size(), 2u);
    EXPECT_EQ(ids_in(batches[0]), inputs_of({samples[0], samples[1], samples[2]}));
    EXPECT_EQ(ids_in(batches[1]), inputs_of({samples[3], samples[4], samples[5]}));
  };
  expect({0, 2, 3}, {3, 4, 5, 9, 10, 11});  // nothing was begun
  ahead.begin({12, 2, 3});
  expect({12, 2, 3}, {15, 16, 17, 21, 22, 23});
  ahead.begin({24, 2, 3});
  ahead.begin({0, 2, 3});
  expect({12, 2, 3}, {15, 16, 17, 21, 22, 23});  // a run that went back
  expect({12, 2, 3}, {15, 16, 17, 21, 22, 23});
}

TEST(ReadAhead, ThrowsWhenTheBadSampleIsAskedFor) {
  const Loader bad(dataset(), collate(), 3, {});
  ReadAhead ahead(bad);
  ahead.begin({0, 1, 1});
  EXPECT_THROW(ahead.read({0, 1, 1}), UserError);
  EXPECT_THROW(ahead.read({0, 1, 1}), UserError);
  ahead.begin({0, 1, 1});
  ahead.wait();
  EXPECT_EQ(ahead.read({0, 0, 1}).size(), 0u);  // its error belonged to the other
}

// Of a file system that does not answer, until it does.
class BlockedSource : public data::SampleSource {
 public:
  void answer() { answers_.set_value(); }
  void read(int64_t number, data::Sample& sample) const override {
    answered_.wait();
    dataset().read(number, sample);
  }
  const std::string& name() const override { return dataset().name(); }
  int64_t size() const override { return dataset().size(); }
  const std::vector<data::SampleField>& fields() const override { return dataset().fields(); }
  const std::vector<std::string>& source_names() const override { return dataset().source_names(); }
  std::string description() const override { return dataset().description(); }
  std::vector<std::string> prefixes() const override { return dataset().prefixes(); }
  void probe_ids(int64_t vocab_size) const override { dataset().probe_ids(vocab_size); }
  data::OrderFingerprint fingerprint(const std::string& reading) const override {
    return dataset().fingerprint(reading);
  }

 private:
  std::promise<void> answers_;
  std::shared_future<void> answered_ = answers_.get_future().share();
};

// A run that ends by an error while the next samples are being read waits for them: not unseen.
TEST(ReadAhead, AReadThatHangsIsNamedByTheHangWatchAndReported) {
  const WhereaboutsBoard& board = WhereaboutsBoard::of_this_process();
  set_phase(RunPhase::kTrain, 12);
  BlockedSource source;
  const Loader loader(source, collate(), 5000, {});
  launch::RankSight rank{.rank = 3, .pid = 42, .sight = {}, .state = 'S'};
  std::thread launcher([&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    do rank.sight = board.sight(0);
    while (rank.sight.waiting != Waiting::kFiles && std::chrono::steady_clock::now() < end);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    source.answer();
  });
  testing::internal::CaptureStderr();
  try {
    ReadAhead ahead(loader, std::chrono::milliseconds(20));
    ahead.begin({24, 1, 1});
    throw UserError("another rank has ended");
  } catch (const UserError&) {
  }
  launcher.join();
  EXPECT_NE(testing::internal::GetCapturedStderr().find(
                "samples 24 and later of the run are still being read after 0.02 s: does the file system"),
            std::string::npos);
  EXPECT_EQ(board.sight(0).waiting, Waiting::kNothing);
  rank.seconds_still = rank.seconds_without_cpu = 59;
  EXPECT_FALSE(launch::find_hang({rank}, {}));
  rank.seconds_still = rank.seconds_without_cpu = 61;
  const auto hang = launch::find_hang({rank}, {});
  ASSERT_TRUE(hang);
  EXPECT_NE(hang->text.find("waits for a disk or a file system in phase train, step 12, reading of the next step's "
                            "samples, for 61.0 s"),
            std::string::npos)
      << hang->text;
}

}  // namespace loader_test
}  // namespace espalier::train
