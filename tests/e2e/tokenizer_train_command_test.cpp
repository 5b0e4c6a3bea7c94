// espalier tokenizer train as a user meets it.
#include <gtest/gtest.h>

#include <map>
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

constexpr const char* kTrain = "espalier tokenizer train --input a.jsonl --vocab-size 261 --output out";

// Names and contents of a folder, with those of folders in it.
std::map<std::string, std::string> contents_of(const fs::path& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    contents[fs::relative(entry.path(), folder)] = entry.is_directory() ? "folder" : read_file(entry.path());
  return contents;
}

TEST_F(Command, ATokenizerThatExistsIsLeftUnlessToldOtherwise) {
  const std::string corpus = "printf '{\"text\": \"low lower lowest\"}\\n' > a.jsonl\n";
  ASSERT_EQ(bash(corpus + kTrain).exit_code, 0);
  const auto before = contents_of(folder_ / "work");
  const Outcome refused =
      bash("printf '{\"text\": \"other words\"}\\n' > b.jsonl\n" + std::string(kTrain) + " --input b.jsonl");
  EXPECT_EQ(refused.exit_code, 2);
  for (const char* part :
       {"--output out: 'out/tokenizer.json' (", "'out/tokenizer_config.json' (", "'out/vocab.json' (",
        "and 'out/merges.txt' (", "exist. Give another name, or replace them with --overwrite."})
    EXPECT_NE(refused.errors.find(part), std::string::npos) << part << " in\n" << refused.errors;
  fs::remove(folder_ / "work/b.jsonl");
  EXPECT_EQ(contents_of(folder_ / "work"), before);
  const Outcome replaced =
      bash("printf '{\"text\": \"other words\"}\\n' > a.jsonl\n" + std::string(kTrain) + " --overwrite");
  EXPECT_EQ(replaced.exit_code, 0) << replaced.errors;
  EXPECT_NE(read_file(folder_ / "work/out/tokenizer.json"), before.at("out/tokenizer.json"));
}

// Each signal ends a command that waits for its input; nothing of what it began stays, and a second command is refused
// while the first runs.
TEST_F(Command, InterruptedWritersLeaveNothing) {
  const std::string writers[] = {
      "espalier tokenizer train --input - --vocab-size 300 --output new/out",
      "espalier preprocess --input - --output-prefix new/out --tokenizer-type GPT2BPETokenizer --vocab-file " + root() +
          "/tests/data/gpt2-tiny/vocab.json --merge-file " + root() + "/tests/data/gpt2-tiny/merges.txt"};
  for (const std::string& writer : writers) {
    for (const auto& [signal, number] : std::map<std::string, int>{{"INT", 2}, {"TERM", 15}, {"HUP", 1}}) {
      // An interactive shell gives its jobs a SIGINT that is not ignored; so does env.
      const Outcome outcome = bash(
          "mkfifo pipe; exec 3<>pipe; printf '{\"text\": \"some words\"}\\n' >&3\n"
          "env --default-signal=INT " +
          writer +
          " <pipe 2>first & job=$!\n"
          "for i in $(seq 600); do ls new/*.tmp new/out/*.tmp >ls 2>/dev/null; [ -s ls ] || ! kill -0 $job && break; "
          "sleep 0.1; done\n"
          "cat ls; echo '{\"text\": \"x\"}' | " +
          writer +
          " 2>second; echo second $?\n"
          "kill -" +
          signal + " $job; wait $job; echo first $?; rm pipe ls; cat first second >&2; rm first second");
      EXPECT_NE(outcome.output.find(".tmp"), std::string::npos) << outcome.output << outcome.errors;
      EXPECT_NE(outcome.output.find("second 73\n"), std::string::npos) << outcome.output << outcome.errors;
      EXPECT_NE(outcome.output.find(concat("first ", 128 + number, "\n")), std::string::npos) << outcome.output;
      EXPECT_NE(outcome.errors.find("what was begun is being removed"), std::string::npos) << outcome.errors;
      EXPECT_NE(outcome.errors.find("is being written by another process"), std::string::npos) << outcome.errors;
      EXPECT_TRUE(fs::is_empty(folder_ / "work")) << contents_of(folder_ / "work").begin()->first;
    }
  }
}

TEST_F(Command, TrainingRefusesInputThatIsNoJsonl) {
  const std::map<std::string, std::string> cases = {
      {"", "there is no text in 'a.jsonl'. Expected JSONL, one object a line: {\"text\": \"...\"}"},
      {"[\\n{\"text\": \"one\"}\\n]\\n", "'a.jsonl' is a JSON array: line 1 begins one"},
      {"\\xef\\xbb\\xbf{\"text\": \"one\"}\\n", "'a.jsonl' begins with a byte-order mark"},
      {"one\\ntwo\\n", "none of the 2 records can be used. The first: a.jsonl:1: "},
      {"{\"text\": \"\"}\\n", "the only document in 'a.jsonl' is empty."}};
  for (const auto& [content, message] : cases) {
    const Outcome outcome = bash("printf '" + content + "' > a.jsonl; " + kTrain);
    EXPECT_EQ(outcome.exit_code, 65) << content << outcome.errors;
    EXPECT_NE(outcome.errors.find(message), std::string::npos) << content << outcome.errors;
    EXPECT_FALSE(fs::exists(folder_ / "work/out")) << content;
  }
  const Outcome plain = bash("printf '\\xff\\xfeo\\0' > a.jsonl; " + std::string(kTrain) + " --plain-text");
  EXPECT_EQ(plain.exit_code, 65) << plain.errors;
  EXPECT_NE(plain.errors.find("'a.jsonl' is UTF-16"), std::string::npos) << plain.errors;
}

TEST_F(Command, WordsThatAreNoOptionsAreToldWhatWorks) {
  const std::pair<const char*, const char*> cases[] = {
      {"espalier tokenizer encode 'some text' --tokenizer x",
       "text is read from standard input: printf %s 'some text' |"},
      {"espalier tokenizer decode 12 13 --tokenizer x", "ids are read from standard input: echo '15496 995' |"},
      {"espalier tokenizer inspect gpt2", "the tokenizer is named by --tokenizer:"},
      {"espalier tokenizer train a.jsonl", "unexpected word a.jsonl: write --input a.jsonl"},
      {"espalier preprocess a.jsonl", "unexpected word a.jsonl: write --input a.jsonl"}};
  for (const auto& [command, message] : cases) {
    const Outcome outcome = bash(command);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.errors;
    EXPECT_NE(outcome.errors.find(message), std::string::npos) << outcome.errors;
  }
}

TEST_F(Command, ASpecialTokenIsUtf8) {
  const Outcome outcome = bash(std::string(kTrain) + " --special-tokens $'a\\xff' --eod-token $'a\\xff'");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.errors.find("--special-tokens: byte 2 of "), std::string::npos) << outcome.errors;
}

}  // namespace
}  // namespace espalier
