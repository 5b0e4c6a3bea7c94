// `espalier train retro` as a user meets it: texts that are found again elsewhere, learnt with their neighbours and
// without; layouts; what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "tests/support/command.h"

namespace espalier {
namespace retro_command_test {

class RetroCommand : public Command {
 protected:
  // `count` texts of 31 random numbers below 30, all of them once, and then all of them again: each chunk of a text is
  // found in another document, which goes on as the text does. Texts and samples have the same length.
  void write_repetitions(int count) const {
    std::mt19937 random(3);
    std::string once;
    for (int document = 0; document < count; ++document) {
      once += "{\"text\": \"";
      for (int at = 0; at < 31; ++at) once += concat(at == 0 ? "" : " ", random() % 30);
      once += "\"}\n";
    }
    write_file_atomically(folder_ / "work/texts.jsonl", once + once);
  }
  std::string preprocess() const {
    return "espalier preprocess --input texts.jsonl --output-prefix texts --tokenizer-type NullTokenizer "
           "--vocab-size 31 --append-eod 2>/dev/null; ";
  }
  // The last tenth of the documents is kept for validation; each of these stands in the training set once.
  std::string flags() const {
    return "--num-layers 6 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 "
           "--micro-batch-size 16 --global-batch-size 16 --lr 3e-3 --lr-decay-style constant "
           "--hidden-dropout 0 --attention-dropout 0 --retro-encoder-hidden-dropout 0 "
           "--retro-encoder-attention-dropout 0 --data-path texts_text_document --tokenizer-type NullTokenizer "
           "--vocab-size 31 --make-vocab-size-divisible-by 1 --split 90,10,0 --eval-interval 1000 --eval-iters 4 "
           "--num-threads 2 --log-interval 100 --retro-workdir work --retro-chunk-length 8 ";
  }
  double valid_loss(const std::string& run) const {
    std::istringstream lines(read_file(folder_ / "work" / run / "metrics.jsonl"));
    double loss = -1;
    for (std::string line; std::getline(lines, line);) {
      const nlohmann::json record = nlohmann::json::parse(line);
      if (record.contains("valid")) loss = record.at("valid").begin()->at("lm_loss").get<double>();
    }
    return loss;
  }
};

TEST_F(RetroCommand, LearnsToReadWhatItsNeighborsSay) {
  if (std::getenv("ESPALIER_TEST_ALL") == nullptr) GTEST_SKIP() << "takes minutes: set ESPALIER_TEST_ALL";
  write_repetitions(400);
  const std::string steps = "--train-iters 300 --lr-warmup-iters 20 --retro-add-retriever ";
  const Outcome outcome = bash(concat(
      "set -e; export OMP_WAIT_POLICY=passive; ", preprocess(), "espalier retro build ", flags(), steps, "--json; ",
      "espalier train retro ", flags(), steps, "--save with --save-interval 300; espalier train retro ", flags(), steps,
      "--load with --save off --save-interval 300 --eval-only true --retro-without-neighbors; espalier train retro ",
      flags(), "--train-iters 300 --lr-warmup-iters 20 --save plain --save-interval 300"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const double with = valid_loss("with"), off = valid_loss("off"), plain = valid_loss("plain");
  std::printf("validation: %.3f with neighbours, %.3f of the same without, %.3f of a GPT\n", with, off, plain);
  const double known = 31 * std::log(30.0) / 32;  // of 31 random numbers and the end of the text
  EXPECT_GT(plain, known - 0.01);
  EXPECT_GT(off, known - 0.01);
  EXPECT_LT(with, known - 0.05);
}

TEST_F(RetroCommand, TrainsTheSameInItsLayoutsAndGoesOnToTheSameBits) {
  write_repetitions(40);
  const std::string run = concat(flags(), "--train-iters 4 --retro-add-retriever --eval-iters 1 --num-threads 1 ");
  const std::string train = concat("espalier train retro ", run, "--save-interval 4 ");
  const Outcome outcome =
      bash(concat("set -e; export OMP_WAIT_POLICY=passive; ", preprocess(), "espalier retro build ", run,
                  "2>/dev/null; espalier parity retro ", run,
                  "--micro-batch-size 2 --steps 4 --layouts tp1,tp2,dp2zero1,dp2zero3; ", train, "--save straight; ",
                  train, "--save stopped --exit-interval 2; ", train,
                  "--save stopped --load stopped; espalier checkpoint diff straight stopped; "
                  "espalier generate --load straight --prompt '1 2 3' --tokens-to-generate 4 --greedy"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.output.find("bitwise equal"), std::string::npos) << outcome.output;
}

TEST_F(RetroCommand, SaysWhatIsWrong) {
  write_repetitions(20);
  const std::string run = concat(flags(), "--train-iters 2 --retro-add-retriever ");
  const auto expect = [&](const std::string& command, const std::vector<const char*>& said) {
    const Outcome outcome = bash(command);
    EXPECT_NE(outcome.exit_code, 0) << command;
    for (const char* part : said) EXPECT_NE(outcome.errors.find(part), std::string::npos) << part << outcome.errors;
  };
  ASSERT_EQ(bash(preprocess()).exit_code, 0);
  expect("espalier train retro " + run, {"holds no chunks (no chunks.json); 'espalier retro build'"});
  ASSERT_EQ(bash("espalier retro build --retro-tasks db-build,index-build " + run).exit_code, 0);
  expect("espalier train retro " + run, {"holds no neighbours; 'espalier retro build'"});
  ASSERT_EQ(bash("espalier retro build " + run).exit_code, 0);
  expect(concat("espalier train retro ", run, "--seed 7"),
         {"neighbours of other samples than those of this run", "the seed was 1234 and is 7"});
  expect(concat("espalier train retro ", run, "--retro-num-neighbors 21 --retro-chunk-length 16"),
         {"--retro-chunk-length 16: the chunks of 'work' have 8 tokens",
          "--retro-num-neighbors 21: the chunks of 'work' have 20 neighbours each; use 20 or fewer"});
  expect(concat("espalier train retro ", run,
                "--num-layers 5 --seq-length 30 --pipeline-model-parallel-size 2 --context-parallel-size 2 "
                "--recompute-granularity full --objective prefix --reset-position-ids --window-size 8"),
         {"--num-layers 5 (command line) has no layer that attends to neighbours", "use 6 or more",
          "--seq-length 30 (command line) is not a multiple of --retro-chunk-length 8", "use 24 or 32",
          "--pipeline-model-parallel-size 2", "--context-parallel-size 2", "use --tensor-model-parallel-size",
          "--recompute-granularity full does not work for a Retro", "--objective prefix", "--reset-position-ids",
          "--window-size 8"});
  expect(concat("espalier retro build ", run, "--retro-tasks db --workers 2 --memory much"),
         {"--retro-tasks db: expected build, or some of", "--memory much"});
  expect(concat("espalier train gpt ", run), {"--retro-add-retriever", "use 'espalier train retro'"});
}

}  // namespace retro_command_test
}  // namespace espalier
