// The options of NVIDIA's Megatron-LM, and what differs between the forks.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/file.h"
#include "base/format.h"
#include "plan/batch_ramp.h"
#include "tests/support/gpt_options.h"

namespace espalier::config {
namespace megatron_lm_options_test {

using Words = std::vector<std::string>;
using Case = std::pair<std::string, std::string>;

void expect_messages(const std::vector<Case>& cases) {
  for (const auto& [flags, message] : cases) EXPECT_EQ(Parsed(flags).messages(), Words{message}) << flags;
}

// The names of arguments.py and of the dataclasses it makes arguments from, NVIDIA/Megatron-LM at d98e8a64; of those
// that argparse gives a negative form, both. Then those that launch lines of core_v0.8.0 to core_v0.18.0 may hold.
TEST(MegatronLmOptions, TableKnowsAllOfThem) {
  RunOptions options(families::gpt_family());
  OptionTable& table = options.table;
  Words names = split_blanks(read_file("tests/data/megatron-lm-options.txt"));
  EXPECT_EQ(names.size(), 878U);
  for (const std::string& name : split_blanks(read_file("tests/data/megatron-lm-older-options.txt")))
    names.push_back(name);
  EXPECT_EQ(names.size(), 878U + 29U);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  for (const std::string& name : names) {
    const Option* option = table.find(name);
    ASSERT_NE(option, nullptr) << name;
    EXPECT_FALSE((option->effect() == OptionEffect::kUsed ? option->help() : option->effect_reason()).empty()) << name;
  }
}

// A launch line of NVIDIA's examples: flags take no value, options with a value take it.
TEST(MegatronLmOptions, ALaunchLineOfItsExamplesIsTaken) {
  const Parsed run(
      "--use-mcore-models --num-layers 2 --hidden-size 48 --ffn-hidden-size 96 --num-attention-heads 4 "
      "--group-query-attention --num-query-groups 2 --kv-channels 12 --seq-length 33 --max-position-embeddings 33 "
      "--position-embedding-type rope --rotary-base 1000000 --rotary-percent 1.0 --attention-dropout 0.0 "
      "--hidden-dropout 0.0 --swiglu --init-method-std 0.0134 --attention-backend fused "
      "--apply-layernorm-1p=false --untie-embeddings-and-output-weights --disable-bias-linear "
      "--transformer-impl transformer_engine "
      "--micro-batch-size 1 --global-batch-size 128 --train-samples 1953125 --lr-decay-samples 1949218 "
      "--lr-warmup-samples 3906 --lr 0.00015 --min-lr 0.00001 --lr-decay-style cosine --clip-grad 1.0 "
      "--weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95 --bf16 --grad-reduce-in-bf16 "
      "--accumulate-allreduce-grads-in-fp32 --cross-entropy-loss-fusion --calculate-per-token-loss --manual-gc "
      "--empty-unused-memory-level 1 --tensor-model-parallel-size 1 --context-parallel-size 1 --sequence-parallel "
      "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --log-interval 1 --eval-iters 32 "
      "--eval-interval 100 --save-interval 1000 --log-throughput --profile --profile-step-start 4 "
      "--profile-step-end 6 --ckpt-format torch_dist --distributed-timeout-minutes 60 --data-path owt "
      "--tokenizer-type NullTokenizer --vocab-size 128256 --no-create-attention-mask-in-dataloader "
      "--no-mmap-bin-files --num-workers 1 --split 99,1,0 --exit-signal SIGTERM --num-experts 1 "
      "--no-tp-comm-split-ag --disable-tp-comm-split-rs --no-rl-use-sequence-packing");
  Words expected;
  EXPECT_EQ(run.messages(), expected);
  EXPECT_EQ(run.config.parallel.grad_reduce_type, GradReduceType::kBf16);
  EXPECT_EQ(run.config.training.profile_step_start, 4);
}

TEST(MegatronLmOptions, RefusalsSayWhyOrWhatToUse) {
  const auto refused = [](const std::string& flag, const std::string& reason) {
    return Case{kGood + flag, flag.substr(0, flag.find(' ')) + " (command line) is not supported: " + reason};
  };
  const auto value = [](const std::string& flag, const std::string& reason) {
    return Case{kGood + flag, flag + " (command line) is not supported: " + reason};
  };
  expect_messages({
      refused("--mock-data", "make a small set with `espalier preprocess`, or with NullTokenizer from lines of ids"),
      refused("--use-megatron-fsdp", "use --zero-stage 3"),
      refused("--iterations-to-skip 5 6", "use --skip-train-iteration-range FIRST-LAST"),
      refused("--multi-latent-attention", "multi-latent attention is not built in; leave it out"),
      refused("--no-pad-vocab-size", "use --make-vocab-size-divisible-by 1"),
      refused("--embedding-init-method-std 0.1", "use --adjust-word-embedding-init --word-embedding-init-std"),
      value("--num-experts 8", "mixture of experts is not built in; leave it out"),
      value("--expert-model-parallel-size 4", "mixture of experts is not built in; use --tensor-model-parallel-size"),
      value("--moe-expert-parallel-size 2", "mixture of experts is not built in; use --tensor-model-parallel-size"),
      value("--main-grads-dtype bf16", "master weights and gradients are fp32; use --zero-stage to divide them"),
      value("--exp-avg-dtype fp16", "it has too few exponents for moments of gradients; use bf16"),
      value("--optimizer adaptive_muon", "only Muon itself is built in; use --optimizer muon"),
      refused("--muon-no-split-qkv", "queries, keys and values are separate matrices; leave it out"),
      {kGood + "--grad-reduce-in-bf16 --grad-reduce-type fp32",
       "--grad-reduce-in-bf16 and --grad-reduce-type fp32 (command line) are mutually exclusive; give one"},
  });
}

// No row of the whole table says only which values are legal where there is one.
TEST(MegatronLmOptions, AnOnlyLegalValueComesWithTheReason) {
  RunOptions options(families::gpt_family());
  OptionTable& table = options.table;
  table.say_notes(false);
  int single = 0;
  for (const auto& option : table.options()) {
    if (option->legal_values().size() != 1 || option->effect() == OptionEffect::kUsed) continue;
    ++single;
    const Parsed run(kGood + option->name() + " something");
    ASSERT_EQ(run.messages().size(), 1U) << option->name();
    EXPECT_NE(run.messages()[0].find("is not supported: "), std::string::npos) << run.messages()[0];
  }
  EXPECT_GE(single, 12);
}

// As in Argonne's loop, `while iteration < train_iters and consumed_train_tokens < train_tokens`: counted here step by
// step.
TEST(TrainTokens, EndTheRunAfterTheStepThatReachesThem) {
  const auto steps = [](const std::string& flags) { return Parsed(kGood + flags).config.training.num_steps; };
  for (const int64_t tokens : {1, 197, 198, 199, 593, 594, 595, 1979, 1980, 1981, 5000}) {
    int64_t consumed = 0, expected = 0;
    while (expected < 10 && consumed < tokens) consumed += 6 * 33, ++expected;
    EXPECT_EQ(steps("--train-tokens " + std::to_string(tokens)), expected) << tokens;
  }
  const std::string ramp =
      kShape + "--micro-batch-size 2 --global-batch-size 32 --rampup-batch-size 8 8 96 --train-samples 320 ";
  const plan::BatchRamp sizes(8, 8, 96, 32);
  for (const int64_t tokens : {1, 264, 265, 1584, 1585, 3696, 3697, 9000, 20000}) {
    int64_t samples = 0, expected = 0;
    while (expected < 14 && samples * 33 < tokens) samples += sizes.global_batch_size(samples), ++expected;
    const Parsed run(ramp + "--train-tokens " + std::to_string(tokens));
    EXPECT_EQ(run.messages(), Words{});
    EXPECT_EQ(run.config.training.num_steps, expected) << tokens;
    // What data and learning rate are planned for stays.
    EXPECT_EQ(run.config.training.scheduled_steps, 14);
    EXPECT_EQ(run.config.training.num_samples, 320);
    EXPECT_EQ(run.config.schedule.decay_samples, 320);
  }
}

TEST(TrainTokens, DoNotPlanARunAlone) {
  expect_messages(
      {{kShape + "--micro-batch-size 3 --global-batch-size 6 --train-tokens 1000",
        "--train-tokens 1000 (command line) ends a run early and does not say for how long its data and learning rate "
        "are planned for; add --train-samples 31, which is as many tokens, or --train-iters"}});
}

TEST(WarmupTokens, MistakesAreNamed) {
  expect_messages({
      {kGood + "--lr-warmup-tokens 100 --lr-warmup-iters 2",
       "--lr-warmup-tokens 100 (command line) and --lr-warmup-iters 2 (command line) are mutually exclusive; give one"},
      {kGood + "--lr-warmup-tokens 100 --lr-warmup-fraction 0.5",
       "--lr-warmup-tokens 100 (command line) and --lr-warmup-fraction 0.5 (command line) are mutually exclusive; give "
       "one"},
      {kGood + "--lr-warmup-tokens 1980",
       "--lr-warmup-tokens 1980 (command line) does not end before the decay does, at 1980 tokens; use at most 1979 "
       "or a later end"},
      {kGood + "--lr-warmup-tokens 500 --lr-decay-tokens 400",
       "--lr-warmup-tokens 500 (command line) does not end before the decay does, at 400 tokens (--lr-decay-tokens "
       "400 (command line)); use at most 399 or a later end"},
  });
}

// oneCCL is Intel's way for ranks to talk; without it they talk as on any CPU.
TEST(DistributedBackend, OneCclStandsForTheFastWay) {
  const Parsed run(kGood + "--distributed-backend ccl");
  EXPECT_EQ(run.messages(), Words{});
  EXPECT_EQ(run.config.parallel.distributed_backend, DistributedBackend::kNccl);
}

// Python reads them as numbers, and no option means anything by them.
TEST(Numbers, ThatAreNotFiniteAreRefusedByEveryOption) {
  RunOptions options(families::gpt_family());
  OptionTable& table = options.table;
  int checked = 0;
  for (const auto& option : table.options()) {
    if (option->kind() != OptionKind::kNumber || option->effect() != OptionEffect::kUsed) continue;
    ++checked;
    for (const std::string word : {"inf", "nan", "1e999", "Infinity"})
      EXPECT_EQ(Parsed(kGood + option->name() + "=" + word).messages()[0],
                option->name() + " " + word + " (command line) is not a finite number");
  }
  EXPECT_GE(checked, 20);
}

}  // namespace megatron_lm_options_test
}  // namespace espalier::config
