// Weights of 8 bits as a user asks for them.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/format.h"
#include "tests/support/command.h"

namespace espalier {
namespace int8_command_test {

using Json = nlohmann::json;

class Int8Command : public Command {};

// The same texts are scored a little differently, and one text alone as among others.
TEST_F(Int8Command, ChangesScoresALittleAndKeepsWhatIsExact) {
  const std::string data = root() + "/tests/data/";
  const Outcome outcome = bash(concat(
      "set -e; espalier train gpt --num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 32 "
      "--max-position-embeddings 32 --micro-batch-size 4 --global-batch-size 4 --lr 1e-2 --train-iters 30 --split "
      "100,0,0 --eval-iters 0 --num-threads 1 --bf16 --save run --save-interval 30 ",
      tiny_gpt_data(), "2>/dev/null\n", R"script(
      for n in 1 2 3 4 5; do
        echo "{\"context\": \"The president of $n\", \"continuation\": \" the United States said on Monday\"}"
      done >requests
      espalier eval --load run --requests requests --num-threads 1 2>/dev/null
      espalier eval --load run --requests requests --num-threads 1 --int8-weights
      tail -1 requests >last
      espalier eval --load run --requests last --num-threads 1 --int8-weights 2>/dev/null
      espalier generate --load run --prompt 'The president' --int8-weights --seed 3 --tokens-to-generate 8 --json)script"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output << outcome.errors;
  EXPECT_NE(outcome.errors.find("8-bit weights: "), std::string::npos) << outcome.errors;
  std::istringstream stream(outcome.output);
  std::vector<Json> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
  ASSERT_EQ(lines.size(), 12u) << outcome.output;
  const auto score = [&](size_t line) { return lines[line].at("loglikelihood").get<double>(); };
  double difference = 0;
  for (size_t request = 0; request < 5; ++request) {
    EXPECT_NEAR(score(5 + request), score(request), 0.01 * std::abs(score(request))) << outcome.output;
    difference += std::abs(score(5 + request) - score(request));
  }
  EXPECT_GT(difference, 0) << "no weight is in 8 bits";
  EXPECT_EQ(score(10), score(9));
  EXPECT_EQ(lines[11].at("generated_ids").size(), 8u);
}

// What is printed is what two evaluations find, one of each kind of weights.
TEST_F(Int8Command, TheShiftOfAPerplexityIsPrinted) {
  write_file_atomically(folder_ / "work/wiki.txt", " = A day = \n It rained , and the end was near .\n");
  const Outcome outcome = bash(concat(
      "set -e; espalier train gpt --num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 32 "
      "--max-position-embeddings 32 --micro-batch-size 4 --global-batch-size 4 --lr 1e-2 --train-iters 30 --split "
      "100,0,0 --eval-iters 0 --num-threads 1 --save run --save-interval 30 ",
      tiny_gpt_data(), "2>/dev/null\n",
      "ask='espalier eval --load run --tasks wikitext103 --data wiki.txt --num-threads 1'; "
      "$ask --json 2>/dev/null; $ask --int8-weights --json 2>/dev/null; $ask --int8-weights --int8-shift >/dev/null"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output << outcome.errors;
  std::vector<double> values;
  for (std::string rest = outcome.output; values.size() < 2;) {
    const size_t at = rest.find("\"adjusted_ppl\":");
    ASSERT_NE(at, std::string::npos) << outcome.output;
    rest.erase(0, at + 15);
    values.push_back(std::stod(rest));
  }
  EXPECT_NE(values[0], values[1]);
  const std::string line = format_printf("8-bit weights: wikitext103 adjusted_ppl %.6g instead of %.6g (%+.3f %%)",
                                         values[1], values[0], 100 * (values[1] / values[0] - 1));
  EXPECT_NE(outcome.errors.find(line), std::string::npos) << line << " in\n" << outcome.errors;
}

TEST_F(Int8Command, NeedsAModel) {
  const Outcome outcome = bash("espalier eval --tasks piqa --data x --int8-weights");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.errors.find("--int8-weights needs --load"), std::string::npos) << outcome.errors;
}

}  // namespace int8_command_test
}  // namespace espalier
