// Bits per byte of an evaluation: the loss, in bits, over the bytes of the text that was predicted.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/command.h"

namespace espalier {
namespace bits_per_byte_command_test {

class BitsPerByteCommand : public Command {
 protected:
  std::string tokenizer() const {
    const std::string folder = root() + "/tests/data/gpt2-tiny/";
    return concat(" --tokenizer-type GPT2BPETokenizer --vocab-file ", folder, "vocab.json --merge-file ", folder,
                  "merges.txt ");
  }
  std::string train(const std::string& launch, const std::string& layout) const {
    return concat("espalier ", launch,
                  "train gpt --num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 33 "
                  "--max-position-embeddings 33 --micro-batch-size 1 --global-batch-size 2 --train-iters 2 --lr 1e-3 "
                  "--split 80,20,0 --eval-iters 3 --eval-interval 2 --log-interval 1 --num-threads 1 --data-path text",
                  tokenizer(), layout);
  }
  nlohmann::json first_evaluation(const std::string& run) const {
    std::istringstream lines(read_file(folder_ / "work" / run / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (nlohmann::json record = nlohmann::json::parse(line); record.contains("valid"))
        return record["valid"]["valid"];
    return {};
  }
};

// No end-of-document ids: every label is text, so that the mean loss and the bytes of the labels give the figure.
TEST_F(BitsPerByteCommand, IsTheLossOverTheBytesOfTheLabelsInEveryLayout) {
  const Outcome outcome = bash(concat(
      "set -e; export OMP_WAIT_POLICY=passive; espalier preprocess", tokenizer(), "--output-prefix text --input ",
      root(),
      "/tests/data/owt-20.jsonl 2>/dev/null; mv text_text_document.bin text.bin; mv text_text_document.idx text.idx; ",
      train("", "--save one --save-interval 2"), "; ",
      train("launch --nproc-per-node 2 ", "--save tp --save-interval 2 --tensor-model-parallel-size 2"), "; ",
      train("launch --nproc-per-node 2 ", "--save pp --save-interval 2 --pipeline-model-parallel-size 2"), "; ",
      train("launch --nproc-per-node 2 ", "--save dp --save-interval 2"),
      "; espalier data sample gpt --data-path text --split 80,20,0 --seq-length 33 --num-samples 4,12,6 --set valid "
      "--first 0 --count 6 --json",
      tokenizer(), "2>/dev/null >samples; grep ids samples"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const nlohmann::json pieces = nlohmann::json::parse(read_file(root() + "/tests/data/gpt2-tiny/vocab.json"));
  std::map<int64_t, std::string> piece_of;
  for (const auto& [piece, id] : pieces.items()) piece_of[id] = piece;
  int64_t bytes = 0, labels = 0;
  std::istringstream samples(read_file(folder_ / "work" / "samples"));
  for (std::string line; std::getline(samples, line);) {
    const auto ids = nlohmann::json::parse(line).at("ids").get<std::vector<int64_t>>();
    for (size_t at = 1; at < ids.size(); ++at, ++labels)
      for (const char c : piece_of.at(ids[at]))  // each character of a piece stands for a byte
        bytes += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }
  ASSERT_EQ(labels, 6 * 33);
  for (const char* run : {"one", "tp", "pp", "dp"}) {
    const nlohmann::json found = first_evaluation(run);
    const double expected =
        found.at("lm_loss").get<double>() * static_cast<double>(labels) / std::log(2.0) / static_cast<double>(bytes);
    EXPECT_NEAR(found.at("bits_per_byte").get<double>(), expected, 1e-6 * expected) << run;
  }
  EXPECT_NE(outcome.errors.find("| bits per byte: "), std::string::npos);
}

}  // namespace bits_per_byte_command_test
}  // namespace espalier
