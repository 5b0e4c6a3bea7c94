// scripts/retrieval, which docs/retrieval.md describes: every command of it, with a twentieth of the training.
#include <gtest/gtest.h>

#include "tests/support/command.h"

namespace espalier {
namespace {

class RetrievalScriptCommand : public Command {};

TEST_F(RetrievalScriptCommand, RunsFromMadeUpTextToItsTables) {
  const Outcome outcome = bash(concat("export OMP_WAIT_POLICY=passive ESPALIER_BIN=$(dirname $(command -v espalier)); ",
                                      root(), "/scripts/retrieval --quick $PWD/out"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  for (const char* part : {"inverse cloze task, 32 blocks", "questions, of 400 passages", "  nq  ", "validation loss  ",
                           "toxicity probability", "perplexity"})
    EXPECT_NE(outcome.output.find(part), std::string::npos) << part << "\n" << outcome.output;
  const Outcome again = bash(concat(root(), "/scripts/retrieval --quick $PWD/out"));
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_NE(again.errors.find("out exists; remove it, or name another folder"), std::string::npos) << again.errors;
}

}  // namespace
}  // namespace espalier
