#include "data/task_dataset.h"

#include <gtest/gtest.h>

#include <set>

#include "text/null_tokenizer.h"

namespace espalier::data {
namespace task_dataset_test {

TaskSet set_of(int64_t num_examples) {
  TaskSet set;
  set.name = "train";
  for (int64_t number = 0; number < num_examples; ++number)
    set.examples.push_back({{std::to_string(number)}, std::make_shared<const std::string>("3"), number % 2, number});
  return set;
}

std::unique_ptr<text::Tokenizer> digits() {
  text::TokenizerOptions options;
  options.type = "NullTokenizer";
  options.vocab_size = 100;
  return text::load_tokenizer(options);
}

std::vector<int64_t> uids(const TaskDataset& set, int64_t first, int64_t count, int64_t counts = 1) {
  std::vector<int64_t> all;
  for (int64_t number = first; number < first + count; ++number) {
    Sample sample;
    set.read(number, sample);
    EXPECT_EQ(sample.arrays[kTaskCounts], std::vector{counts}) << number;
    all.push_back(sample.arrays[kTaskUid][0]);
  }
  return all;
}

const TaskSampleOptions kOptions{
    .task = FinetuningTask::kQqp, .sequence_length = 8, .seed = 1234, .tokens = {.cls = 97, .sep = 98, .pad = 99}};

// python3 -c "import torch; g=torch.Generator(); g.manual_seed(1234+E); print(torch.randperm(7, generator=g).tolist())"
TEST(TaskDataset, AnEpochHasTheOrderOfTorchWithSeedPlusEpoch) {
  const auto tokenizer = digits();
  const TaskDataset set(set_of(7), kOptions, {.num_epochs = 2, .global_batch_size = 3}, *tokenizer);
  ASSERT_EQ(set.size(), 12);
  const std::vector<int64_t> first = {6, 4, 3, 1, 0, 5, 2}, second = {6, 5, 4, 0, 3, 2, 1};
  EXPECT_EQ(uids(set, 6, 6), std::vector(second.begin(), second.begin() + 6));
  EXPECT_EQ(uids(set, 0, 6), std::vector(first.begin(), first.begin() + 6));
}

TEST(TaskDataset, KeepLastReadsEveryExampleOnceAndFillsUpWithWhatDoesNotCount) {
  const auto tokenizer = digits();
  const TaskDataset set(set_of(7), kOptions, {.num_epochs = 2, .global_batch_size = 5, .keep_last = true}, *tokenizer);
  ASSERT_EQ(set.size(), 20);
  for (const int64_t epoch : {1, 0}) {
    const std::vector<int64_t> read = uids(set, epoch * 10, 7);
    EXPECT_EQ(std::set<int64_t>(read.begin(), read.end()).size(), 7u);
    uids(set, epoch * 10 + 7, 3, 0);
  }
}

TEST(TaskDataset, ASetToEvaluateIsReadInOrder) {
  const auto tokenizer = digits();
  const TaskDataset set(set_of(5), kOptions, {}, *tokenizer);
  EXPECT_EQ(uids(set, 0, 5), (std::vector<int64_t>{0, 1, 2, 3, 4}));
}

TEST(TaskDataset, TheFingerprintTellsTextsLabelsAndSteps) {
  const auto tokenizer = digits();
  const auto fingerprint = [&](TaskSet set, int64_t batch) {
    return to_text(TaskDataset(std::move(set), kOptions, {.num_epochs = 1, .global_batch_size = batch}, *tokenizer)
                       .fingerprint("single"));
  };
  TaskSet other_label = set_of(7), other_text = set_of(7);
  other_label.examples[6].label = 1;
  other_text.examples[6].first[0] = "9";
  const std::string one = fingerprint(set_of(7), 2);
  EXPECT_EQ(one, fingerprint(set_of(7), 2));
  EXPECT_NE(one, fingerprint(std::move(other_label), 2));
  EXPECT_NE(one, fingerprint(std::move(other_text), 2));
  EXPECT_NE(one, fingerprint(set_of(7), 3));
}

}  // namespace task_dataset_test
}  // namespace espalier::data
