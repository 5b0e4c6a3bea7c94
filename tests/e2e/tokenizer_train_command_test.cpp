// espalier tokenizer train as a user meets it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"

namespace espalier {
namespace {

TEST_F(Command, TokenizerIsTrainedAndUsed) {
  const Outcome train = bash(
      "printf '%s\\n' '{\"text\": \"low lower lowest\"}' 'no json' '{\"text\": \"low low\"}' > a.jsonl\n"
      "gzip -k a.jsonl\n"
      "espalier tokenizer train --input a.jsonl a.jsonl.gz --vocab-size 261 --output out --workers 3 --json");
  ASSERT_EQ(train.exit_code, 0) << train.errors;
  EXPECT_NE(train.errors.find("2 malformed lines left out:\n  a.jsonl:2: "), std::string::npos) << train.errors;
  const nlohmann::json summary = nlohmann::json::parse(train.output);
  EXPECT_EQ(summary["vocab_size"], 261);
  EXPECT_EQ(summary["documents"], 4);
  EXPECT_EQ(summary["words"], 10);
  EXPECT_EQ(summary["malformed"], 2);
  // "l o" and "o w" are equally frequent; l has the smaller id.
  EXPECT_EQ(read_file(folder_ / "work/out/merges.txt"), "#version: 0.2\nl o\nlo w\nĠ low\nĠlow e\n");
  const Outcome encoded = bash("printf 'low lowe' | espalier tokenizer encode --tokenizer out");
  EXPECT_EQ(encoded.output, "258 260\n") << encoded.errors;
}

TEST_F(Command, LinesOfPlainTextAreDocuments) {
  const Outcome train = bash(
      "printf 'ab\\n  ab' | espalier tokenizer train --input - --plain-text --vocab-size 300 --output out --json "
      "--min-frequency 0");
  ASSERT_EQ(train.exit_code, 0) << train.errors;
  EXPECT_EQ(nlohmann::json::parse(train.output)["documents"], 2);
  EXPECT_NE(train.errors.find("warning: the vocabulary has 259 pieces, not 300"), std::string::npos) << train.errors;
}

TEST_F(Command, EveryProblemOfATrainingIsNamedAndNothingIsWritten) {
  const Outcome outcome = bash(
      "espalier tokenizer train --input nowhere.jsonl --vocab-size 200 --special-tokens a b --memory 1MX --output out");
  EXPECT_EQ(outcome.exit_code, 2);
  for (const char* part :
       {"4 problems", "--input nowhere.jsonl: no such file", "--vocab-size 200: use 258 (256 bytes and 2 special)",
        "which of --special-tokens a b", "--memory 1MX: expected a size of at least 1MiB"})
    EXPECT_NE(outcome.errors.find(part), std::string::npos) << part << " in\n" << outcome.errors;
  EXPECT_TRUE(fs::is_empty(folder_ / "work"));
}

}  // namespace
}  // namespace espalier
