// A biencoder in every kind of layout: the training of one process that has the whole micro-batch of all replicas, the
// same bits after a stop, and any checkpoint in any layout. Pipeline stages are refused.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "families/ict/config.h"
#include "families/ict_task/config.h"
#include "tests/parallel/parity_runs.h"

namespace espalier::test {
namespace parallel_ict_test {

// Of DPR's form: texts of 1 to 12 words of tests/data's vocabulary of BERT, and 0 to 3 hard negatives.
void write_questions(const std::string& path, int count) {
  const Words words = split_blanks("and arger aus brown adwjj ajvse apje don mask the");
  std::mt19937 random(3);
  const auto text = [&] {
    std::string result = words[random() % words.size()];
    for (size_t more = random() % 12; more > 0; --more) result += " " + words[random() % words.size()];
    return result;
  };
  const auto passages = [&](size_t number) {
    nlohmann::json list = nlohmann::json::array();
    for (; number > 0; --number) list.push_back({{"title", words[random() % words.size()]}, {"text", text()}});
    return list;
  };
  nlohmann::json questions = nlohmann::json::array();
  for (int question = 0; question < count; ++question)
    questions.push_back({{"question", text() + "?"},
                         {"positive_ctxs", passages(1)},
                         {"hard_negative_ctxs", passages(random() % 4)},
                         {"negative_ctxs", passages(question % 2)}});
  std::ofstream(path) << questions;
}

class ParallelIct : public ::testing::Test {
 protected:
  ParallelIct() {
    write_sentence_files(folder_ / "data", 200, 11);
    write_title_files(folder_ / "data_titles", 200, 12);
  }

  // Queries compete for the contexts of a micro-batch of all replicas: 8 in every layout, and two such in a step.
  Words run_flags(const plan::Layout& layout, const std::string& more) const {
    return tiny_ict_run(folder_ / "data") +
           split_blanks(
               "--num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32"
               " --make-vocab-size-divisible-by 1 --pad-vocab-size-to 331 --global-batch-size 16 --train-samples 64"
               " --lr-decay-samples 64 --num-threads 1 --micro-batch-size ") +
           Words{std::to_string(8 / layout.grid.data)} + split_blanks(more);
  }
  train::ParityRun run_in(const std::string& layout, const std::string& more) const {
    return parity_run(families::ict_family(), run_flags(plan::parse_layout(layout), more), layout);
  }

  void train_in(const std::string& layout_text, const std::string& save, const Words& more) const {
    const plan::Layout layout = plan::parse_layout(layout_text);
    const Words words = run_flags(layout, "--save-interval 1000 --eval-iters 0 --log-level error") +
                        plan::layout_flags(layout, 4) + Words{"--save", folder_ / save} + more;
    dist::run_ranks(layout.grid, [&](const dist::Grid& grid) {
      train(words, grid, families::ict_family());
      return std::string();
    });
  }

  TemporaryFolder folder_;
};

TEST_F(ParallelIct, TrainsTheModelOfOneProcessWithTheWholeBatch) {
  for (const char* more :
       {"--retriever-score-scaling --retriever-report-topk-accuracies 1 5",
        "--biencoder-shared-query-context-model --biencoder-projection-dim 7 --checkpoint-activations"}) {
    const train::ParityRun one = run_in("tp1", more);
    ASSERT_EQ(one.losses.size(), static_cast<size_t>(kParitySteps));
    for (const char* layout :
         {"dp2", "dp4", "tp2", "tp4sp", "dp2zero1", "dp4zero2", "dp4zero3", "cp2", "tp2cp2dp2spzero3"})
      expect_same_training(layout, run_in(layout, more), one);
  }
}

// Passages of its own that a question brings, and one that brings too few.
TEST_F(ParallelIct, SoIsARetrieverFinetunedOnQuestions) {
  write_questions(folder_ / "train.json", 37);
  const std::string more = concat(
      "--retriever-seq-length 16 --train-with-neg --train-hard-neg 2 --epochs 3 --keep-last "
      "--eval-iters 0 --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 32 --lr 1e-3 --num-threads "
      "1 "
      "--max-position-embeddings 32 --make-vocab-size-divisible-by 1 --pad-vocab-size-to 331 --global-batch-size 16 "
      "--log-level error --vocab-file tests/data/megatron_tokenizers/bert_lower/vocab.txt --train-data ",
      folder_ / "train.json");
  const auto run = [&](const std::string& layout) {
    const int64_t replicas = plan::parse_layout(layout).grid.data;
    return parity_run(families::ict_task_family(),
                      split_blanks(more) + Words{"--micro-batch-size", std::to_string(8 / replicas)}, layout);
  };
  const train::ParityRun one = run("tp1");
  ASSERT_EQ(one.losses.size(), static_cast<size_t>(kParitySteps));
  for (const char* layout : {"dp2", "dp4zero1", "tp2dp2spzero3"}) expect_same_training(layout, run(layout), one);
}

// Were gradients of contexts kept by their own replica alone, the norm would be another.
TEST_F(ParallelIct, OtherNegativesAreAnotherTraining) {
  const train::ParityRun one = run_in("tp1", "");
  const train::ParityRun fewer = run_in("tp1", "--micro-batch-size 4");
  EXPECT_GT(train::compare(fewer, one).first_loss, 1e-2);
}

TEST_F(ParallelIct, StoppedAndResumedHasTheSameBits) {
  for (const char* layout : {"tp2dp2sp", "dp2zero3"}) {
    const std::string name = layout;
    train_in(layout, name + "straight", {"--bf16"});
    train_in(layout, name + "stopped", {"--bf16", "--exit-interval", "2"});
    train_in(layout, name + "stopped", {"--bf16", "--load", folder_ / (name + "stopped")});
    EXPECT_EQ(
        different_tensors(folder_ / (name + "straight/step_00000004"), folder_ / (name + "stopped/step_00000004")),
        Words());
  }
}

TEST_F(ParallelIct, GoesOnFromAnyLayoutInAnyOther) {
  train_in("tp1", "one", {});
  train_in("tp2", "many", {"--exit-interval", "1"});
  train_in("dp4zero1", "many", {"--load", folder_ / "many", "--exit-interval", "2"});
  train_in("dp2zero3", "many", {"--load", folder_ / "many", "--exit-interval", "3"});
  train_in("tp4sp", "many", {"--load", folder_ / "many"});
  const auto one = step_records(folder_ / "one"), many = step_records(folder_ / "many");
  ASSERT_EQ(one.size(), 4u);
  ASSERT_EQ(one.size(), many.size());
  for (size_t step = 0; step < one.size(); ++step)
    EXPECT_NEAR(many[step].at("loss").get<double>() / one[step].at("loss").get<double>(), 1, 1e-6) << step + 1;
}

}  // namespace parallel_ict_test
}  // namespace espalier::test
