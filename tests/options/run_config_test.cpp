#include "config/run_config.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "base/format.h"
#include "plan/lr_schedule.h"
#include "tests/support/gpt_options.h"

namespace espalier::config {
namespace {

using namespace test;

using Words = std::vector<std::string>;

const std::string kSamples = kShape + "--micro-batch-size 2 --global-batch-size 32 ";

TEST(RunConfig, TableKnowsEveryOptionOfMegatronDeepSpeed) {
  const RunOptions options(families::gpt_family());
  const OptionTable& table = options.table;
  const Words names = split_blanks(read_file("tests/data/megatron-deepspeed-options.txt"));
  EXPECT_EQ(names.size(), 184U);
  for (const std::string& name : names) {
    const Option* option = table.find(name);
    ASSERT_NE(option, nullptr) << name;
    EXPECT_EQ(option->name(), name);
    if (option->effect() == OptionEffect::kUsed) {
      EXPECT_FALSE(option->help().empty()) << name;
    } else {
      EXPECT_FALSE(option->effect_reason().empty()) << name;
    }
  }
}

// From the table of defaults of Megatron-DeepSpeed's arguments.py.
TEST(RunConfig, DefaultsAreThoseOfMegatronDeepSpeed) {
  const std::vector<std::pair<const char*, const char*>> expected = {{"--make-vocab-size-divisible-by", "128"},
                                                                     {"--layernorm-epsilon", "1e-05"},
                                                                     {"--position-embedding-type", "absolute"},
                                                                     {"--attention-dropout", "0.1"},
                                                                     {"--hidden-dropout", "0.1"},
                                                                     {"--weight-decay", "0.01"},
                                                                     {"--clip-grad", "1.0"},
                                                                     {"--adam-beta1", "0.9"},
                                                                     {"--adam-beta2", "0.999"},
                                                                     {"--adam-eps", "1e-08"},
                                                                     {"--optimizer", "adam"},
                                                                     {"--log-interval", "100"},
                                                                     {"--seed", "1234"},
                                                                     {"--init-method-std", "0.02"},
                                                                     {"--lr-decay-style", "linear"},
                                                                     {"--lr-warmup-iters", "0"},
                                                                     {"--lr-warmup-samples", "0"},
                                                                     {"--min-lr", "0.0"},
                                                                     {"--initial-loss-scale", "4294967296.0"},
                                                                     {"--min-loss-scale", "1.0"},
                                                                     {"--loss-scale-window", "1000.0"},
                                                                     {"--hysteresis", "2"},
                                                                     {"--tensor-model-parallel-size", "1"},
                                                                     {"--pipeline-model-parallel-size", "1"},
                                                                     {"--eval-iters", "100"},
                                                                     {"--eval-interval", "1000"},
                                                                     {"--data-impl", "infer"},
                                                                     {"--tensorboard-log-interval", "1"},
                                                                     {"--no-bias-gelu-fusion", "false"},
                                                                     {"--no-log-learnig-rate-to-tensorboard", "false"},
                                                                     {"--bf16", "false"}};
  const RunOptions options(families::gpt_family());
  const OptionTable& table = options.table;
  for (const auto& [name, value] : expected) EXPECT_EQ(table.find(name)->default_values(), Words{value}) << name;
  for (const char* unset :
       {"--train-iters", "--train-samples", "--lr", "--lr-decay-iters", "--lr-decay-samples", "--loss-scale",
        "--save-interval", "--split", "--exit-interval", "--pad-vocab-size-to", "--global-batch-size", "--zero-stage"})
    EXPECT_EQ(table.find(unset)->default_values(), Words{}) << unset;
}

TEST(RunConfig, DerivesWhatIsNotGiven) {
  const Parsed run(kShape + "--micro-batch-size 3 --train-iters 10 --bf16 --lr-warmup-fraction 0.25");
  EXPECT_EQ(run.messages(), Words{});
  EXPECT_EQ(run.model().ffn_hidden_size, 192);
  EXPECT_EQ(run.model().kv_channels, 12);
  EXPECT_EQ(run.config.training.global_batch_size, 3);
  EXPECT_EQ(run.config.training.num_steps, 10);
  EXPECT_EQ(run.config.training.num_samples, 30);
  EXPECT_EQ(run.config.training.precision, Precision::kBf16);
  EXPECT_EQ(run.config.schedule.decay_samples, 30);
  EXPECT_EQ(run.config.schedule.warmup_samples, 7.5);
  EXPECT_EQ(run.config.data.split, "969, 30, 1");
  EXPECT_EQ(run.config.data.sequence_length, 33);
  EXPECT_EQ(run.config.training.recompute, (Recompute{}));
}

TEST(RunConfig, StepsFollowTheRamp) {
  // rampup.json of the oracle: 14 steps.
  const Parsed run(kSamples + "--rampup-batch-size 8 8 96 --train-samples 320");
  EXPECT_EQ(run.messages(), Words{});
  EXPECT_EQ(run.config.training.num_steps, 14);
}

TEST(RunConfig, TheLaunchLineOfBloomResolvesOnItsGrid) {
  Parsed run(
      "--pp-partition-method type:transformer|embedding --num-layers 70 --hidden-size 14336 --num-attention-heads 112 "
      "--seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 2 --rampup-batch-size 192 16 9_765_625 "
      "--global-batch-size 2048 --train-samples 220_000_000 --tokenizer-type PretrainedFromHF --tokenizer-name-or-path "
      "x "
      "--init-method-std 0.0048 --embed-layernorm --sync-tp-duplicated-parameters --bf16 --seed 42 "
      "--position-embedding-type alibi --checkpoint-activations --abort-on-unmet-fused-kernel-constraints "
      "--kill-switch-path k --pad-vocab-size-to 250880 --optimizer adam --adam-beta1 0.9 --adam-beta2 0.95 --adam-eps "
      "1e-8 "
      "--lr 6e-5 --min-lr 6e-6 --lr-decay-style cosine --lr-decay-samples 200_000_000 --lr-warmup-samples 183_105 "
      "--clip-grad 1.0 --weight-decay 1e-1 --exit-duration-in-mins 5990 --log-interval 1 --save-interval 100 "
      "--eval-interval 1000 --eval-iters 1 --tensorboard-dir t --tensorboard-queue-size 5 --log-timers-to-tensorboard "
      "--log-batch-size-to-tensorboard --log-validation-ppl-to-tensorboard --zero-stage 0 "
      "--deepspeed-activation-checkpointing --tensor-model-parallel-size 4 --pipeline-model-parallel-size 12 --save P "
      "--load P --train-weighted-split-paths-path a --valid-weighted-split-paths-path b --num-workers 2 "
      "--valid-num-workers 0 --data-impl mmap --distributed-backend nccl");
  EXPECT_EQ(run.messages(), Words{});
  EXPECT_EQ(run.config.training.num_steps, 115311);
  EXPECT_EQ(run.config.schedule.warmup_samples, 183105);
  EXPECT_EQ(run.config.schedule.decay_samples, 200000000);
  EXPECT_EQ(run.config.training.recompute, (Recompute{Recompute::Kind::kUniform, 1}));
  EXPECT_TRUE(run.config.data.weighted_splits);
  EXPECT_EQ(run.model().position_embedding, families::PositionEmbedding::kAlibi);
  Problems at_start;
  check_runnable(run.config, run.table, at_start);
  EXPECT_EQ(at_start.messages(),
            (Words{"one process was started, but one copy of the model needs 48 (tensor 4 * context 1 * pipeline 12): "
                   "start them with `espalier launch --nproc-per-node 48 train gpt ...`, or with torchrun, srun or "
                   "mpirun"}));
}

TEST(RunConfig, ActivationFollowsUpstreamsFusionFlags) {
  EXPECT_EQ(Parsed(kGood).model().activation, spec::Activation::kGeluTanh);
  EXPECT_EQ(Parsed(kGood + "--no-bias-gelu-fusion").model().activation, spec::Activation::kGeluErf);
  EXPECT_EQ(Parsed(kGood + "--no-bias-gelu-fusion --openai-gelu").model().activation, spec::Activation::kGeluTanh);
  EXPECT_FALSE(Parsed(kGood + "--untie-embeddings-and-output-weights").model().tie_output);
}

TEST(RunConfig, RecomputeHasOldAndNewSpellings) {
  using Kind = Recompute::Kind;
  const auto recompute = [](const std::string& flags) { return Parsed(kGood + flags).config.training.recompute; };
  EXPECT_EQ(recompute("--checkpoint-activations --checkpoint-num-layers 2"), (Recompute{Kind::kUniform, 2}));
  EXPECT_EQ(recompute("--recompute-granularity full"), (Recompute{Kind::kUniform, 1}));
  EXPECT_EQ(recompute("--recompute-granularity full --recompute-method block --recompute-num-layers 2"),
            (Recompute{Kind::kBlock, 2}));
  EXPECT_EQ(recompute("--recompute-granularity selective"), (Recompute{}));
  EXPECT_EQ(Parsed(kGood + "--checkpoint-activations --recompute-num-layers 3").messages(),
            Words{"--recompute-num-layers 3 (command line) is more than --num-layers 2 (command line); use at most 2"});
  EXPECT_EQ(Parsed(kGood + "--recompute-granularity selective --recompute-method block").messages(),
            Words{"--recompute-method block (command line) needs --recompute-granularity full"});
}

// Flags that break one rule, and the one message about it with the nearest legal choice.
using Case = std::pair<std::string, std::string>;

void expect_run_messages(const std::vector<Case>& cases) {
  for (const auto& [flags, message] : cases) EXPECT_EQ(Parsed(flags).messages(), Words{message}) << flags;
}

TEST(RunConfig, BrokenRulesOfBatchAndLengthAreNamed) {
  expect_run_messages({
      {kGood + "--global-batch-size 7",
       "--global-batch-size 7 (command line) is not a multiple of --micro-batch-size 3 "
       "(command line) * data-parallel size 1; use 6 or 9"},
      {kGood + "--train-samples 5",
       "--train-iters 10 (command line) and --train-samples 5 (command line) are mutually exclusive; give one"},
      {kShape + "--micro-batch-size 1", "one of --train-iters and --train-samples is required: how long to train"},
      {kSamples + "--train-iters 9 --rampup-batch-size 8 8 96",
       "--rampup-batch-size 8 8 96 (command line) needs --train-samples instead of --train-iters"},
      {kSamples + "--train-samples 320 --rampup-batch-size 8 5 96",
       "--rampup-batch-size 8 5 96 (command line): the increment 5 does not divide 32 - 8 = 24; use 4 or 6"},
      {kSamples + "--train-samples 320 --rampup-batch-size 5 9 96",
       "--rampup-batch-size 5 9 96 (command line): the start 5 is not a multiple of micro-batch size * data-parallel "
       "size = 2; use 4 or 6"},
      {kSamples + "--train-samples 320 --rampup-batch-size 2 3 96",
       "--rampup-batch-size 2 3 96 (command line): the increment 3 is not a multiple of micro-batch size * "
       "data-parallel size = 2; use 2 or 4"},
      {kSamples + "--train-samples 320 --rampup-batch-size 32 8 96",
       "--rampup-batch-size 32 8 96 (command line) starts at 32, not below the global batch size 32; leave the ramp "
       "out or start lower"},
      {kSamples + "--train-samples 320 --rampup-batch-size 8 8",
       "--rampup-batch-size 8 8 (command line) needs 3 values (start, increment, samples), found 2"},
      {kGood + "--batch-size 3",
       "--batch-size (command line) is not supported: use --micro-batch-size (samples at once) and --global-batch-size "
       "(samples of a step)"},
  });
}

TEST(RunConfig, BrokenRulesOfTheLearningRateAreNamed) {
  expect_run_messages({
      {kGood + "--lr-decay-samples 9",
       "--lr-decay-samples 9 (command line) cannot be combined with --train-iters; use --lr-decay-iters"},
      {kGood + "--lr-warmup-samples 9",
       "--lr-warmup-samples 9 (command line) cannot be combined with --train-iters; use --lr-warmup-iters"},
      {kSamples + "--train-samples 320 --lr-decay-iters 9",
       "--lr-decay-iters 9 (command line) cannot be combined with --train-samples; use --lr-decay-samples"},
      {kSamples + "--train-samples 320 --lr-warmup-iters 9",
       "--lr-warmup-iters 9 (command line) cannot be combined with --train-samples; use --lr-warmup-samples"},
      {kGood + "--lr-warmup-iters 2 --lr-warmup-fraction 0.1",
       "--lr-warmup-fraction 0.1 (command line) and --lr-warmup-iters 2 (command line) are mutually exclusive; give "
       "one"},
      {kGood + "--lr-warmup-iters 10",
       "--lr-warmup-iters 10 (command line) does not end before the decay does, at 10 steps (the whole run); use at "
       "most 9 or a later --lr-decay-iters"},
      {kGood + "--min-lr 0.01", "--min-lr 0.01 (command line) is above --lr 0.001 (command line); use at most 0.001"},
      {kGood + "--lr inf", "--lr inf (command line) is not a finite number"},
      {kGood + "--override-lr-scheduler --use-checkpoint-lr-scheduler",
       "--override-lr-scheduler and --use-checkpoint-lr-scheduler are mutually exclusive; give one"},
  });
}

TEST(RunConfig, BrokenRulesOfModelAndGridAreNamed) {
  expect_run_messages({
      {kGood + "--fp16 --bf16",
       "--fp16 (command line) and --bf16 (command line) are mutually exclusive; give one, or neither for fp32"},
      {kGood + "--hidden-size 50",
       "--hidden-size 50 (command line) is not a multiple of --num-attention-heads 4 (command line); "
       "use a hidden size of 48 or 52, or 2 or 5 heads, or give --kv-channels"},
      {kGood + "--max-position-embeddings 32",
       "--max-position-embeddings 32 (command line) is below the sequence length 33; use 33 or more"},
      {kGood + "--pad-vocab-size-to 5121",
       "--pad-vocab-size-to 5121 (command line): 5121 is not divisible by 128 (--make-vocab-size-divisible-by); use "
       "5120 or 5248"},
      {kGood + "--pad-vocab-size-to 5121 --make-vocab-size-divisible-by 2",
       "--pad-vocab-size-to 5121 (command line): 5121 is not divisible by 2 (--make-vocab-size-divisible-by); use 5120 "
       "or 5122"},
      {kGood + "--encoder-seq-length 32",
       "--seq-length 33 (command line) and --encoder-seq-length 32 (command line) are the same option, and differ; "
       "give "
       "one"},
      {kGood + "--tensor-model-parallel-size 3",
       "--tensor-model-parallel-size 3 (command line) does not divide --num-attention-heads 4 (command line); use 2 or "
       "4"},
      {kGood + "--pipeline-model-parallel-size 3",
       "--pipeline-model-parallel-size 3 (command line) is more than --num-layers 2 (command line); use at most 2"},
      {kGood + "--hidden-dropout 1",
       "--hidden-dropout 1.0 (command line) drops everything; use a share below 1, such as 0.1"},
      {kGood + "--profile-step-start 5 --profile-step-end 5",
       "--profile-step-end 5 (command line) is not after --profile-step-start 5 (command line); use 6 or more"},
      {kGood + "--fp16-lm-cross-entropy", "--fp16-lm-cross-entropy needs --fp16; leave it out"},
      {kGood + "--position-embedding-type yarn",
       "--position-embedding-type yarn (command line) is not supported: use rotary with --rope-scaling-type yarn"},
  });
}

TEST(RunConfig, BrokenRulesOfFilesAndValuesAreNamed) {
  expect_run_messages({
      {kSamples + "--train-samples 31",
       "--train-samples 31 (command line) is less than the first batch of 32 samples; use 32 or more"},
      {kGood + "--save x", "--save x (command line) needs --save-interval: steps between checkpoints"},
      {kGood + "--ckpt-step 5", "--ckpt-step 5 (command line) needs --load: the folder to load from"},
      {kGood + "--finetune", "--finetune (command line) needs --load: the folder to load from"},
      {kGood + "--override sead", "--override sead names no option; did you mean seed?"},
      {kGood + "--optimizer soap",
       "--optimizer soap (command line) is not supported: no preconditioner is kept; use --optimizer muon, which makes "
       "one of each step's momentum"},
  });
}

TEST(RunConfig, NumbersThatCannotBeCountedAreRefused) {
  expect_run_messages({
      {kGood + "--train-iters 999_999_999_999 --global-batch-size 999_999",
       "--train-iters 999999999999 (command line) makes more than 9e18 tokens; use at most 272727545454"},
      {kGood + "--tensor-model-parallel-size 9223372036854775807",
       "--tensor-model-parallel-size 9223372036854775807 (command line) is above the largest value, 1000000"},
  });
}

TEST(RunConfig, ProblemsOfManyKindsComeTogether) {
  const Parsed run(
      "--num-layer 2 --hidden-size 50 --num-attention-heads 4 --seq-length 33 --max-position-embeddings 3 "
      "--micro-batch-size 3 --global-batch-size 7 --train-iters 10 --lr-warmup-iters 12 --lr 1e-3 --bf16 --fp16 "
      "--data-path x");
  EXPECT_EQ(run.messages().size(), 6U) << join(run.messages(), "\n");
}

TEST(RunConfig, ResolvedOptionsReadBackToTheSameRun) {
  const Parsed run(kSamples +
                   "--rampup-batch-size 8 8 96 --train-samples 320 --lr-warmup-samples 9 --fp16 --no-bias-gelu-fusion "
                   "--checkpoint-activations --log-params-norm --eval-only=1");
  ASSERT_EQ(run.messages(), Words{});
  Parsed again("");
  again.problems = Problems();
  again.table.parse_toml(run.table.to_toml(), "config.toml", again.problems);
  resolve(again.config, again.table, again.problems);
  EXPECT_EQ(again.messages(), Words{});
  EXPECT_EQ(again.table.to_toml(), run.table.to_toml());
  EXPECT_EQ(again.model(), run.model());
  EXPECT_EQ(again.config.training.num_steps, 14);
  EXPECT_EQ(again.config.schedule.warmup_samples, 9);
}

TEST(RunConfig, VocabularyIsPaddedByDivisorOrToASize) {
  Parsed run(kGood);
  set_vocabulary(run.config, 50257);
  EXPECT_EQ(run.config.vocabulary.padded_size, 50304);  // GPT-2, as Megatron pads it
  Parsed exact(kGood + "--pad-vocab-size-to 250880");
  set_vocabulary(exact.config, 250680);
  EXPECT_EQ(exact.config.vocabulary.padded_size, 250880);
  Parsed small(kGood + "--pad-vocab-size-to 1280");
  try {
    set_vocabulary(small.config, 5000);
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "--pad-vocab-size-to 1280 is below the tokenizer's 5000 entries; use 5120 or more");
  }
}

class RunFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    for (const char* name : {"step_00000010", "step_00000020", "step_00000030.partial"})
      std::filesystem::create_directories(folder_ / "run" / name);
    for (const char* name :
         {"vocab.json", "merges.txt", "run/step_00000010/manifest.json", "run/step_00000020/manifest.json"})
      write_file_atomically(folder_ / name, "x");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Messages of check_files, with the folder's name replaced by D.
  Words check(std::string flags) const {
    const std::string name = folder_.string();
    for (size_t at; (at = flags.find("D/")) != std::string::npos;) flags.replace(at, 1, name);
    const Parsed run(flags);
    EXPECT_EQ(run.messages(), Words{});
    Problems problems;
    check_files(run.config, run.table, problems);
    Words messages = problems.messages();
    for (std::string& message : messages)
      for (size_t at; (at = message.find(name)) != std::string::npos;) message.replace(at, name.size(), "D");
    return messages;
  }

  const std::filesystem::path folder_ = std::filesystem::temp_directory_path() / "espalier_run_files_test";
  const std::string good_ = kGood + "--vocab-file D/vocab.json --merge-file D/merges.txt ";
};

TEST_F(RunFiles, GoodOnesPass) {
  EXPECT_EQ(check(good_ + "--load D/run --save D/new/run --save-interval 5 --tensorboard-dir D/tb"), Words{});
  EXPECT_EQ(check(good_ + "--load D/run/step_00000010"), Words{});
  EXPECT_EQ(check(good_ + "--load D/run --ckpt-step 20"), Words{});
  EXPECT_EQ(check(good_ + "--load D/none --save D/none --save-interval 5"), Words{}) << "a new run";
}

TEST_F(RunFiles, MissingOnesAreNamed) {
  EXPECT_EQ(check(good_ + "--vocab-file D/v.json"),
            Words{"--vocab-file D/v.json (command line): there is no such file"});
  EXPECT_EQ(
      check(good_ + "--tokenizer-type PretrainedFromHF"),
      Words{
          "--tokenizer-name-or-path is required with --tokenizer-type PretrainedFromHF: tokenizer.json or its folder"});
  EXPECT_EQ(check(good_ + "--tokenizer-type PretrainedFromHF --tokenizer-name-or-path D/run"), Words{})
      << "what a folder without tokenizer.json can be used for is said when it is read";
  EXPECT_EQ(
      check(good_ + "--tokenizer-type PretrainedFromHF --tokenizer-name-or-path bigscience/bloom"),
      Words{
          "--tokenizer-name-or-path bigscience/bloom (command line): there is no such file or folder, and names of the "
          "Hugging Face Hub are not fetched; download its tokenizer.json and name that file"});
  EXPECT_EQ(check(good_ + "--save D/vocab.json/x --save-interval 5"),
            Words{"--save D/vocab.json/x (command line): D/vocab.json is a file, not a folder"});
}

TEST_F(RunFiles, ARunIsNotPutIntoACheckpointOrOnTopOfAnother) {
  for (const char* folder : {"D/run/step_00000020", "D/run/step_00000020/a/b"})
    EXPECT_EQ(check(good_ + "--save-interval 5 --save " + folder),
              Words{std::string("--save ") + folder +
                    " (command line) is in a checkpoint: D/run/step_00000020 belongs to the run D/run and goes when "
                    "that is pruned. Give another folder"});
  EXPECT_EQ(check(good_ + "--save D/run --save-interval 5"),
            Words{"--save D/run (command line) already holds checkpoints up to iteration 20, and this run does not "
                  "continue from them. Give --load D/run to continue, or another --save"});
  EXPECT_EQ(check(good_ + "--save D/run --load D/run --save-interval 5"), Words{});
  EXPECT_EQ(check(good_ + "--save D/run/step_00000040/x --save-interval 5"), Words{}) << "no checkpoint";
  std::filesystem::create_directory(folder_ / "project");
  write_file_atomically(folder_ / "project/config.toml", "mine = 1");
  EXPECT_EQ(check(good_ + "--save D/project --save-interval 5"),
            Words{"--save D/project (command line) is not a run folder, and holds a config.toml, which the run would "
                  "replace. Give another folder"});
  write_file_atomically(folder_ / "project/events.jsonl", "");
  EXPECT_EQ(check(good_ + "--save D/project --save-interval 5"), Words{}) << "a run that has saved nothing yet";
}

TEST_F(RunFiles, CheckpointsThatAreNotThereAreNamed) {
  EXPECT_EQ(check(good_ + "--load D/none"), Words{"--load D/none (command line): there is no such folder"});
  EXPECT_EQ(check(good_ + "--load D/run/step_00000030.partial"),
            Words{"--load D/run/step_00000030.partial (command line): the folder holds no complete checkpoint "
                  "(step_*/manifest.json)"});
  EXPECT_EQ(check(good_ + "--load D/run --ckpt-step 30"),
            Words{"--ckpt-step 30 (command line) is not in D/run; its complete steps are 10, 20"});
}

TEST(RunConfig, SplitPathsOfTheCommandLineWinOverARecipesSplit) {
  const std::string paths = " --train-weighted-split-paths-path train.txt";
  EXPECT_EQ(Parsed("--recipe recipes/tiny.toml").config.data.split, "98,2,0");
  EXPECT_EQ(Parsed("--recipe recipes/tiny.toml" + paths).config.data.split, "");
  EXPECT_EQ(Parsed("--recipe recipes/tiny.toml --split 9,1,0" + paths).config.data.split, "9,1,0");  // refused later
}

TEST(RunConfig, EvaluationAloneNeedsNoSchedule) {
  const std::string shape =
      "--num-layers 2 --hidden-size 48 --num-attention-heads 4 --seq-length 33 --max-position-embeddings 33 "
      "--data-path owt --micro-batch-size 3 --eval-only yes ";
  for (const char* more : {"", "--min-lr 1e-5", "--train-iters 4 --min-lr 1e-5"}) {
    const Parsed run(shape + more);
    EXPECT_EQ(run.messages(), Words{}) << more;
    EXPECT_NO_THROW(plan::LrSchedule{run.config.schedule}) << more;
  }
}

}  // namespace
}  // namespace espalier::config
