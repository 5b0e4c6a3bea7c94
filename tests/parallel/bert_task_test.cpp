// Finetuning in every kind of layout: the training of one process. Pipeline stages are refused.
#include <fstream>
#include <random>

#include "families/bert_task/config.h"
#include "tests/parallel/parity_runs.h"

namespace espalier::test {
namespace bert_task_test {

// MNLI's columns, with pairs of texts of 1 to 30 words of tests/data's vocabulary of BERT.
void write_pairs(const std::string& path, int count) {
  const Words words = split_blanks("and arger aus brown adwjj ajvse apje don mask the");
  const Words labels = split_blanks("contradiction entailment neutral");
  std::mt19937 random(3);
  const auto text = [&] {
    std::string result = words[random() % words.size()];
    for (size_t more = random() % 30; more > 0; --more) result += " " + words[random() % words.size()];
    return result;
  };
  std::ofstream file(path);
  file << "a\tb\tc\td\te\tf\tg\th\ti\tj\tk\tl\n";
  for (int row = 0; row < count; ++row)
    file << row << "\tx\tx\tx\tx\tx\tx\tx\t" << text() << "\t" << text() << "\ty\t" << labels[random() % 3] << "\n";
}

class ParallelBertTask : public ::testing::Test {
 protected:
  ParallelBertTask() { write_pairs(folder_ / "train.tsv", 67); }

  Words flags(const std::string& more) const {
    return split_blanks(
               "--task MNLI --epochs 3 --num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 32 "
               "--max-position-embeddings 32 --micro-batch-size 1 --global-batch-size 8 --lr 1e-3 --num-threads 1 "
               "--eval-iters 0 --log-level error --make-vocab-size-divisible-by 1 --pad-vocab-size-to 323 --vocab-file "
               "tests/data/megatron_tokenizers/bert_lower/vocab.txt") +
           Words{"--train-data", folder_ / "train.tsv"} + split_blanks(more);
  }

  TemporaryFolder folder_;
};

TEST_F(ParallelBertTask, TrainsTheModelOfOneProcess) {
  for (const char* more : {"--keep-last", "--recompute-granularity full --recompute-method uniform"}) {
    const train::ParityRun one = parity_run(families::bert_task_family(), flags(more), "tp1");
    ASSERT_EQ(one.losses.size(), static_cast<size_t>(kParitySteps));
    for (const char* layout : {"tp2", "tp4sp", "dp2", "dp4zero1", "dp2zero2", "dp2zero3", "cp2", "tp2cp2dp2spzero3"})
      expect_same_training(layout, parity_run(families::bert_task_family(), flags(more), layout), one);
  }
}

}  // namespace bert_task_test
}  // namespace espalier::test
