// --attention-backend: what it resolves to, and with what it is refused.
#include <gtest/gtest.h>

#include "config/parity_request.h"
#include "families/bert/config.h"
#include "families/t5/config.h"
#include "tests/support/gpt_options.h"

namespace espalier::config {
namespace attention_backend_options_test {

using Words = std::vector<std::string>;
using spec::AttentionBackend;
using test::kGood;
using test::Parsed;

const std::string kPlain = kGood + "--bf16 --attention-dropout 0 --attention-backend cudnn ";
const std::string kByCudnn = kPlain + "--kv-channels 16 ";

void expect_message(const std::string& flags, const std::string& message) {
  EXPECT_EQ(Parsed(kByCudnn + flags).messages(), Words{message}) << flags;
}

TEST(AttentionBackendOptions, AllWordsOfMegatronsAreEspaliersKernels) {
  EXPECT_EQ(Parsed(kGood).config.training.attention_backend, AttentionBackend::kFlash);
  for (const std::string word : {"flash", "auto", "fused", "unfused", "local"}) {
    const Parsed run(kGood + "--attention-backend " + word);
    EXPECT_EQ(run.messages(), Words{}) << word;
    EXPECT_EQ(run.config.training.attention_backend, AttentionBackend::kFlash) << word;
  }
}

TEST(AttentionBackendOptions, PlainAttentionCanBeCudnns) {
  for (const std::string flags :
       {"", "--device cuda", "--position-embedding-type rotary --num-key-value-heads 1", "--attention-softmax-in-fp32",
        "--seq-length-stages 0:11 --seq-length-stages-by truncating"}) {
    const Parsed run(kByCudnn + flags);
    EXPECT_EQ(run.messages(), Words{}) << flags;
    EXPECT_EQ(run.config.training.attention_backend, AttentionBackend::kCudnn) << flags;
  }
}

TEST(AttentionBackendOptions, WhatCudnnLacksIsRefusedByName) {
  const auto excluded = [](const std::string& flags, const std::string& why) {
    expect_message(flags, "--attention-backend cudnn and " + flags + " (command line) exclude each other: " + why +
                              ". Use --attention-backend flash, or do without the other");
  };
  excluded("--position-embedding-type alibi",
           "cuDNN's slopes of ALiBi are those of the heads of one rank, not of the model");
  excluded("--attention-dropout 0.1", "cuDNN draws dropout masks of its own; 0 draws none");
  excluded("--window-size 7", "by cuDNN a token sees all that are before it");
  excluded("--attn-logit-soft-cap 50.0", "cuDNN's scores have no cap here");
  excluded("--objective prefix", "by cuDNN a token sees exactly those before it");
  excluded("--packing best-fit", "by cuDNN a token sees all documents before it");
  excluded("--reset-attention-mask", "by cuDNN a token sees all documents before it");
  for (const auto& [flags, channels] : {std::pair<std::string, int>{"", 12}, {"--kv-channels 136", 136}})
    EXPECT_EQ(
        Parsed(kPlain + flags).messages(),
        Words{concat("--attention-backend cudnn takes heads of a multiple of 8 channels, at most 128, and this "
                     "model's have ",
                     channels, ". Use --attention-backend flash, or another --kv-channels or --num-attention-heads")});
}

TEST(AttentionBackendOptions, RowsOfShorterSequencesAreRefused) {
  const Words said = Parsed(kByCudnn + "--seq-length-stages 0:11").messages();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("by cuDNN a token sees the whole row before it; truncating cuts rows instead"),
            std::string::npos)
      << said[0];
}

TEST(AttentionBackendOptions, TheDefaultDropoutIsNamedToo) {
  const Words said = Parsed(kGood + "--kv-channels 16 --bf16 --attention-backend cudnn").messages();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("--attention-dropout"), std::string::npos) << said[0];
}

TEST(AttentionBackendOptions, AGpuAndAShortTypeAreNeeded) {
  expect_message("--device cpu",
                 "--attention-backend cudnn (command line) computes on a GPU, and --device cpu (command line) says the "
                 "CPU; leave one out");
  EXPECT_EQ(Parsed(kGood + "--kv-channels 16 --attention-dropout 0 --attention-backend cudnn").messages(),
            Words{"--attention-backend cudnn (command line) computes in bf16 or fp16; give --bf16 or --fp16, or use "
                  "--attention-backend flash"});
}

TEST(AttentionBackendOptions, OtherFamiliesAreRefused) {
  for (const Family* family : {&families::bert_family(), &families::t5_family()}) {
    const Words said = Parsed("--bf16 --attention-backend cudnn", 0, *family).messages();
    const std::string expected =
        concat("--attention-backend cudnn (command line) has neither the masks nor the biases of ", family->display,
               "; use --attention-backend flash");
    EXPECT_NE(std::find(said.begin(), said.end(), expected), said.end()) << family->name;
  }
}

TEST(AttentionBackendOptions, ParityNeedsGpus) {
  ParityRequest request{.family = &families::gpt_family(), .layouts = {}, .arguments = {}};
  Problems problems;
  read_parity_request(split_blanks(kByCudnn + "--layouts tp1pp1dp1"), request, problems);
  const std::string expected =
      "--attention-backend cudnn (command line) computes on a GPU, and layouts are compared on the CPU without "
      "--device "
      "cuda; give it too";
  const Words& said = problems.messages();
  EXPECT_NE(std::find(said.begin(), said.end(), expected), said.end());
}

}  // namespace attention_backend_options_test
}  // namespace espalier::config
