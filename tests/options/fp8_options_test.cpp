// Options of fp8: what they resolve to, and what is refused beside them.
#include <gtest/gtest.h>

#include <tuple>

#include "tests/support/gpt_options.h"

namespace espalier::config {
namespace fp8_options_test {

using Words = std::vector<std::string>;
using spec::Fp8;
using test::kGood;
using test::Parsed;

void expect_message(const std::string& flags, const std::string& message) {
  EXPECT_EQ(Parsed(kGood + flags).messages(), Words{message}) << flags;
}

TEST(Fp8Options, EachSpellingOfMegatronsIsTaken) {
  const std::vector<std::tuple<std::string, Fp8>> expected = {{"--bf16", Fp8::kNone},
                                                              {"--bf16 --fp8-format e4m3", Fp8::kE4M3},
                                                              {"--bf16 --fp8-format hybrid", Fp8::kHybrid},
                                                              {"--bf16 --fp8-e4m3", Fp8::kE4M3},
                                                              {"--bf16 --fp8-hybrid", Fp8::kHybrid},
                                                              {"--bf16 --fp8-hybrid --fp8-format hybrid", Fp8::kHybrid},
                                                              {"--fp8_format=hybrid --bf16", Fp8::kHybrid}};
  for (const auto& [flags, fp8] : expected) {
    const Parsed run(kGood + flags);
    EXPECT_EQ(run.messages(), Words{}) << flags;
    EXPECT_EQ(run.config.training.fp8, fp8) << flags;
    EXPECT_EQ(test::resolved_shape(kGood + flags + " --pad-vocab-size-to 128", 1).fp8, fp8) << flags;
  }
}

TEST(Fp8Options, WhatIsSaidOfScalesIsTakenWhereItChangesNothing) {
  const std::string margins =
      "--fp8-margin 0 --fp8-interval 1 --fp8-amax-history-len 1024 --fp8-amax-compute-algo max ";
  for (const std::string& flags :
       {margins, margins + "--bf16 --fp8-format hybrid --fp8-recipe tensorwise --transformer-impl transformer_engine",
        std::string("--fp8-recipe delayed --no-fp8-wgrad --first-last-layers-bf16")})
    EXPECT_EQ(Parsed(kGood + flags).messages(), Words{}) << flags;
}

TEST(Fp8Options, ContradictionsAreNamed) {
  const std::string needs = " rounds what linear layers multiply, which has to be bf16; give --bf16 too";
  expect_message("--fp8-format hybrid", "--fp8-format hybrid (command line)" + needs);
  expect_message("--fp16 --fp8-e4m3", "--fp8-e4m3 (command line)" + needs);
  expect_message("--bf16 --fp8-e4m3 --fp8-format hybrid",
                 "--fp8-format hybrid (command line) and --fp8-e4m3 (command line) are different formats; give one");
  expect_message("--bf16 --fp8-e4m3 --fp8-hybrid",
                 "--fp8-e4m3 (command line) and --fp8-hybrid (command line) are different formats; give one");
  expect_message("--bf16 --fp8-hybrid --fp8-recipe delayed",
                 "--fp8-recipe delayed (command line) is not built in: each tensor is scaled by its own largest "
                 "magnitude; use --fp8-recipe tensorwise");
}

TEST(Fp8Options, WhatAsksForAnotherArithmeticIsRefused) {
  const auto with = [](const std::string& option, const std::string& why) {
    expect_message("--bf16 --fp8-format hybrid " + option,
                   option.substr(0, option.find(' ')) + " (command line): with --fp8-format hybrid (command line) " +
                       why + "; leave it out");
  };
  with("--no-fp8-wgrad", "gradients of weights are products of fp8 too");
  with("--fp8-output-proj", "the output layer stays bf16");
  with("--fp8-param-gather", "weights are kept and gathered in bf16");
  with("--first-last-layers-bf16", "all layers are fp8");
  with("--num-layers-at-start-in-bf16 2", "all layers are fp8");
  with("--num-layers-at-end-in-bf16 2", "all layers are fp8");
}

TEST(Fp8Options, ResolvedOptionsReadBackToTheSameFormat) {
  const Parsed run(kGood + "--bf16 --fp8-hybrid");
  Parsed again("");
  again.problems = Problems();
  again.table.parse_toml(run.table.to_toml(), "config.toml", again.problems);
  resolve(again.config, again.table, again.problems);
  EXPECT_EQ(again.messages(), Words{});
  EXPECT_EQ(again.config.training.fp8, Fp8::kHybrid);
}

}  // namespace fp8_options_test
}  // namespace espalier::config
