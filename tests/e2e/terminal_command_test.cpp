// What is between the program and people: standard output that fails, help that fits, colours, completion, man
// pages.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/format.h"
#include "tests/support/command.h"
#include "tests/support/long_version.h"

namespace espalier {
namespace {

TEST_F(Command, StandardOutputThatFailsIsAnErrorOfEveryCommandThatPrints) {
  const std::string recipe = root() + "/recipes/tiny.toml", data = root() + "/tests/data/owt-20_text_document";
  const std::string tokenizer = root() + "/tests/data/gpt2-tiny/";
  for (const std::string& command :
       {std::string("help"), std::string("version"), std::string("--version"), std::string("train gpt --help-all"),
        "train gpt --validate-only --recipe " + recipe, "plan gpt --pad-vocab-size-to 1280 --recipe " + recipe,
        "data inspect --json " + data, "data inspect " + data, std::string("completion bash"),
        "tokenizer inspect --tokenizer " + tokenizer + "vocab.json",
        "tokenizer encode --tokenizer " + tokenizer + "vocab.json < " + recipe, std::string("help --man train gpt"),
        std::string("submit --dry-run --no-check train gpt"), std::string("completion --words tr")}) {
    const Outcome full = bash("espalier " + command + " > /dev/full");
    EXPECT_EQ(full.exit_code, 74) << command << "\n" << full.errors;
    EXPECT_NE(full.errors.find("error: cannot write to standard output: No space left on device\n"), std::string::npos)
        << command << "\n"
        << full.errors;
    const Outcome good = bash("espalier " + command);
    EXPECT_EQ(good.exit_code, 0) << command << "\n" << good.errors;
    EXPECT_NE(good.output, "") << command;
  }
}

TEST_F(Command, StandardOutputWithoutAReaderIsNoSuccessAndNoMessage) {
  // SIGPIPE ignored, as under some service managers and in Python's subprocess; else the signal ends the program.
  const Outcome ignored = bash(
      "trap '' PIPE; set -o pipefail\n"
      "(espalier train gpt --help-all; echo $? > code) | true\n"
      "cat code");
  EXPECT_EQ(ignored.output, "74\n") << ignored.errors;
  EXPECT_EQ(ignored.errors, "");
  const Outcome killed = bash("(sleep 0.2; espalier train gpt --help-all; echo $? > code) | true; cat code");
  EXPECT_EQ(killed.output, "141\n") << killed.errors;
}

TEST_F(Command, StandardOutputThatWasClosedFromTheStartIsNoErrorUntilSomethingIsPrinted) {
  EXPECT_EQ(bash("espalier version >&-").exit_code, 74);
  EXPECT_EQ(bash("espalier train gpt >&-").exit_code, 2);
}

TEST_F(Command, NoLineOfHelpIsOver100Columns) {
  const Outcome commands = bash("espalier help --commands");
  ASSERT_EQ(commands.exit_code, 0) << commands.errors;
  std::vector<std::string> helps = {"help", "data --help", "tokenizer --help", "checkpoint --help", "runs --help"};
  for (const std::string& line : split(strip(commands.output), '\n')) {
    helps.push_back(line + " --help");
    helps.push_back(line + " --help-all");
  }
  std::string script;
  for (const std::string& help : helps) script += concat("espalier ", help, "; printf '%d\\f' $?\n");
  const std::vector<std::string> said = split(bash(script).output, '\f');
  ASSERT_GE(said.size(), helps.size());
  for (size_t at = 0; at < helps.size(); ++at) {
    EXPECT_TRUE(said[at].ends_with("\n0")) << helps[at] << "\n" << said[at];
    EXPECT_NE(said[at].find("usage: espalier"), std::string::npos) << helps[at];
    for (const std::string& line : split(said[at], '\n')) EXPECT_LE(line.size(), 100U) << helps[at] << "\n" << line;
  }
}

TEST_F(Command, ColoursAreForTerminalsUnlessForcedOrForbidden) {
  const std::string bold = "\033[1m";
  EXPECT_EQ(bash("espalier help").output.find('\033'), std::string::npos);
  EXPECT_NE(bash("CLICOLOR_FORCE=1 espalier train gpt --help").output.find(bold + "network size:"), std::string::npos);
  EXPECT_EQ(bash("CLICOLOR_FORCE=1 NO_COLOR=1 espalier help").output.find('\033'), std::string::npos);
  EXPECT_EQ(bash("espalier nothing").errors.find('\033'), std::string::npos);
  EXPECT_EQ(bash("CLICOLOR_FORCE=1 espalier nothing").errors.find("\033[1;31merror:\033[0m unknown command nothing"),
            0U);
  // script(1) gives it a terminal.
  if (bash("command -v script").exit_code != 0) GTEST_SKIP() << "there is no script(1)";
  const auto on_terminal = [&](const std::string& variables) {
    return bash("unset NO_COLOR CLICOLOR_FORCE; " + variables + " script -qec 'espalier train gpt --help' /dev/null")
        .output;
  };
  EXPECT_NE(on_terminal("TERM=xterm").find(bold + "usage:"), std::string::npos);
  EXPECT_EQ(on_terminal("TERM=dumb").find('\033'), std::string::npos);
  EXPECT_EQ(on_terminal("TERM=xterm NO_COLOR=1").find('\033'), std::string::npos);
}

// Lines of words, each as a shell would complete it.
struct Completion {
  const char* words;
  const char* expected;
};
constexpr Completion kCompletions[] = {
    {"tra", "train"},
    {"data ins", "inspect"},
    {"train ", "bert bert-task gpt ict ict-task retro t5"},
    {"train gpt --lr-warmup-it", "--lr-warmup-iters"},
    {"train gpt --lr-decay-style co", "constant cosine"},
    {"launch --nproc-per-n", "--nproc-per-node"},
    {"launch --nproc-per-node 2 tra", "train"},
    {"launch --nproc-per-node 2 train gpt --lr-decay-s", "--lr-decay-samples --lr-decay-style"},
    {"launch --nproc-per-node 2 train gpt --lr-decay-style li", "linear"},
    {"submit --nodes 2 train gpt --rope-scaling-f", "--rope-scaling-factor"},
    {"train gpt --recipe fi", "file.toml"},
    {"train gpt --data-path a b fi", "file.toml"},
    {"train gpt --save fol", "folder"},
    {"help chec", "checkpoint"},
    {"nothing --x", ""},
};

std::string sorted_words(const std::string& text) {
  std::vector<std::string> words = split_blanks(text);
  for (std::string& word : words)
    while (word.ends_with("/")) word.pop_back();  // shells differ in whether a folder ends so
  std::sort(words.begin(), words.end());
  return join(words, " ");
}

TEST_F(Command, BashCompletes) {
  std::string script = "touch file.toml; mkdir folder\nsource <(espalier completion bash)\n";
  for (const Completion& completion : kCompletions)
    script +=
        concat("COMP_WORDS=(espalier ", completion.words, std::string(completion.words).ends_with(" ") ? "''" : "",
               "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _espalier; echo ${COMPREPLY[@]}\n");
  script += "COMP_WORDS=(espalier train gpt --lr-decay-style = l); COMP_CWORD=5; _espalier; echo ${COMPREPLY[@]}\n";
  const Outcome outcome = bash(script);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const std::vector<std::string> lines = split(outcome.output, '\n');
  size_t at = 0;
  for (const Completion& completion : kCompletions)
    EXPECT_EQ(sorted_words(lines.at(at++)), completion.expected) << completion.words;
  EXPECT_EQ(lines.at(at), "linear") << "bash cuts --name=value into three words";
}

TEST_F(Command, ZshCompletes) {
  if (bash("command -v zsh").exit_code != 0) GTEST_SKIP() << "there is no zsh";
  // The functions of the completion system answer by printing what they were given.
  std::string script =
      "autoload -Uz compinit; compinit -u -D\nsource <(espalier completion zsh)\n"
      "compadd() { print -r -- ${names[@]} }\n"
      "_files() { if [[ $1 == -/ ]]; then print -r -- *(/); else print -r -- fi*; fi }\n";
  for (const Completion& completion : kCompletions)
    script += concat("words=(espalier ", completion.words, std::string(completion.words).ends_with(" ") ? "''" : "",
                     "); CURRENT=${#words}; out=$(_espalier); print -r -- $out\n");
  write_file_atomically(folder_ / "completion.zsh", script);
  const Outcome outcome = bash("touch file.toml; mkdir folder; zsh -f " + (folder_ / "completion.zsh").string());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const std::vector<std::string> lines = split(outcome.output, '\n');
  size_t at = 0;
  for (const Completion& completion : kCompletions)
    EXPECT_EQ(sorted_words(lines.at(at++)), completion.expected) << completion.words << "\n" << outcome.errors;
}

TEST_F(Command, FishCompletes) {
  if (bash("command -v fish").exit_code != 0) GTEST_SKIP() << "there is no fish";
  std::string script = "espalier completion fish | source\n";
  for (const Completion& completion : kCompletions)
    script += concat("echo (complete -C 'espalier ", completion.words, "' | string replace -r '\\t.*' '')\n");
  write_file_atomically(folder_ / "completion.fish", script);
  const Outcome outcome =
      bash("touch file.toml; mkdir folder; HOME=$PWD fish --no-config " + (folder_ / "completion.fish").string());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const std::vector<std::string> lines = split(outcome.output, '\n');
  size_t at = 0;
  for (const Completion& completion : kCompletions)
    EXPECT_EQ(sorted_words(lines.at(at++)), completion.expected) << completion.words << "\n" << outcome.errors;
}

TEST_F(Command, EveryCommandHasAManPageThatRendersWithoutWarnings) {
  const Outcome written = bash(root() + "/scripts/man-pages man1 " + ESPALIER_PROGRAM);
  ASSERT_EQ(written.exit_code, 0) << written.errors;
  for (const char* page : {"espalier.1", "espalier-train-gpt.1", "espalier-generate.1", "espalier-runs-show.1",
                           "espalier-doctor.1", "espalier-checkpoint-import-megatron.1"})
    EXPECT_TRUE(fs::exists(folder_ / "work/man1" / page)) << page;
  const std::string text = read_file(folder_ / "work/man1/espalier-train-gpt.1");
  EXPECT_NE(text.find(".TH ESPALIER\\-TRAIN\\-GPT 1"), std::string::npos);
  EXPECT_NE(text.find("\n\\fB\\-\\-num\\-layers\\fR"), std::string::npos);
  if (bash("command -v man && command -v groff").exit_code != 0) GTEST_SKIP() << "there is no man or groff";
  // A page takes man a tenth of a second: five of them without --all.
  const std::string pages = test::long_version()
                                ? "man1/*.1"
                                : "man1/espalier{,-train-gpt,-generate,-runs-show,-checkpoint-import-megatron}.1";
  const Outcome rendered =
      bash("for page in " + pages +
           "; do LC_ALL=C.UTF-8 MANROFFSEQ= MANWIDTH=80 man --warnings=w -l \"$page\" > /dev/null; "
           "done\n"
           "LC_ALL=C.UTF-8 MANWIDTH=80 man -l man1/espalier-generate.1 | grep -c temperature");
  EXPECT_EQ(rendered.errors, "");
  EXPECT_EQ(rendered.output, "1\n");
}

}  // namespace
}  // namespace espalier
