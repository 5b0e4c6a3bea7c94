// One test for each line of the contract of resuming, on the options of `espalier train gpt`.
#include "config/resume.h"

#include <gtest/gtest.h>

#include "base/hash.h"
#include "config/run_options.h"
#include "families/gpt/config.h"

namespace resume_test {

using namespace espalier;
using config::OptionDifference;
using config::ResumeFlags;
using Words = std::vector<std::string>;

// Options as a run of a small BLOOM has them, with changes after.
struct SmallRun : config::RunOptions {
  explicit SmallRun(const Words& changes = {}) : RunOptions(families::gpt_family()) {
    Words arguments = {"--num-layers",
                       "2",
                       "--hidden-size",
                       "8",
                       "--num-attention-heads",
                       "2",
                       "--max-position-embeddings",
                       "16",
                       "--seq-length",
                       "16",
                       "--micro-batch-size",
                       "2",
                       "--global-batch-size",
                       "4",
                       "--train-iters",
                       "10",
                       "--lr",
                       "1e-3",
                       "--lr-decay-iters",
                       "20",
                       "--position-embedding-type",
                       "alibi",
                       "--bf16",
                       "--data-path",
                       "data/a",
                       "--split",
                       "969, 30, 1",
                       "--save",
                       "run",
                       "--save-interval",
                       "5"};
    arguments.insert(arguments.end(), changes.begin(), changes.end());
    Problems problems;
    table.parse(arguments, problems);
    problems.raise();
  }
};

struct Outcome {
  std::vector<OptionDifference> differences;
  Problems problems;
  Words keys() const {
    Words keys;
    for (const OptionDifference& difference : differences) keys.push_back(difference.key);
    return keys;
  }
};

Outcome resume(const Words& saved, const Words& present, const ResumeFlags& flags = {}) {
  const SmallRun then(saved), now(present);
  Outcome outcome;
  outcome.differences = config::compare_options(then.table, now.table, flags, outcome.problems);
  return outcome;
}

TEST(Resume, TheSameOptionsDifferInNothing) {
  const Outcome outcome = resume({}, {});
  EXPECT_EQ(outcome.keys(), Words{});
  EXPECT_TRUE(outcome.problems.empty());
  EXPECT_EQ(config::to_table(outcome.differences), "");
}

TEST(Resume, TheSavedConfigurationComparesEqualToTheOptionsItWasWrittenFrom) {
  SmallRun now({"--lr-warmup-fraction", "0.1", "--openai-gelu", "--reset-attention-mask"});
  config::RunConfig config;
  OptionTable saved("espalier train gpt", "Trains.");
  config::add_options(families::gpt_family(), saved, config);
  Problems problems;
  config::resolve(now.config, now.table, problems);
  problems.raise();
  saved.parse_toml(now.table.to_toml(), "config.toml", problems);
  EXPECT_TRUE(config::compare_options(saved, now.table, {}, problems).empty());
  problems.raise();
}

TEST(Resume, LayoutMicroBatchIntervalsPathsAndStopConditionsAreFreeAndEveryDifferenceIsListed) {
  const Outcome outcome = resume({}, {"--micro-batch-size",
                                      "4",
                                      "--tensor-model-parallel-size",
                                      "2",
                                      "--pipeline-model-parallel-size",
                                      "2",
                                      "--num-threads",
                                      "3",
                                      "--zero-stage",
                                      "0",
                                      "--checkpoint-activations",
                                      "--save-interval",
                                      "7",
                                      "--eval-interval",
                                      "9",
                                      "--log-interval",
                                      "1",
                                      "--save",
                                      "other",
                                      "--load",
                                      "run",
                                      "--data-cache-path",
                                      "cache",
                                      "--vocab-file",
                                      "moved/vocab.json",
                                      "--exit-interval",
                                      "3",
                                      "--exit-duration-in-mins",
                                      "5",
                                      "--kill-switch-path",
                                      "stop",
                                      "--train-iters",
                                      "15"});
  EXPECT_TRUE(outcome.problems.empty()) << outcome.problems.messages()[0];
  const Words keys = outcome.keys();
  EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()),
            (std::set<std::string>{"micro_batch_size", "tensor_model_parallel_size", "pipeline_model_parallel_size",
                                   "num_threads", "zero_stage", "checkpoint_activations", "save_interval",
                                   "eval_interval", "log_interval", "save", "load", "data_cache_path", "vocab_file",
                                   "exit_interval", "exit_duration_in_mins", "kill_switch_path", "train_iters"}));
}

TEST(Resume, ALearningRateThatDiffersStopsUntilOneOfTheTwoFlagsSaysWhichCounts) {
  const Words changes = {"--lr", "2e-3", "--lr-decay-style", "cosine"};
  const Outcome neither = resume({}, changes);
  EXPECT_EQ(
      neither.problems.messages(),
      (Words{"--lr: the checkpoint has 0.001, the command line 0.002. Say which counts: --override-lr-scheduler (the "
             "command line) or --use-checkpoint-lr-scheduler (the checkpoint).",
             "--lr-decay-style: the checkpoint has \"linear\", the command line \"cosine\". Say which counts: "
             "--override-lr-scheduler (the command line) or --use-checkpoint-lr-scheduler (the checkpoint)."}));

  const Outcome command_line = resume({}, changes, {.override_lr_scheduler = true});
  EXPECT_TRUE(command_line.problems.empty());
  EXPECT_FALSE(config::uses_saved_schedule(command_line.differences));

  const Outcome checkpoint = resume({}, changes, {.use_checkpoint_lr_scheduler = true});
  EXPECT_TRUE(checkpoint.problems.empty());
  EXPECT_TRUE(config::uses_saved_schedule(checkpoint.differences));

  EXPECT_EQ(resume({}, {}, {.override_lr_scheduler = true, .use_checkpoint_lr_scheduler = true}).problems.messages(),
            Words{"--override-lr-scheduler and --use-checkpoint-lr-scheduler are mutually exclusive: give one"});
}

TEST(Resume, EveryLearningRateOptionIsInThatClass) {
  const std::vector<Words> changes = {
      {"--min-lr", "1e-5"},        {"--lr-decay-iters", "30"},      {"--lr-decay-samples", "30"},
      {"--lr-decay-tokens", "30"}, {"--lr-warmup-fraction", "0.5"}, {"--lr-warmup-iters", "1"},
      {"--lr-warmup-samples", "1"}};
  for (const Words& change : changes) {
    const Outcome outcome = resume({}, change);
    ASSERT_EQ(outcome.differences.size(), 1u) << change[0];
    EXPECT_EQ(outcome.differences[0].rule, ResumeRule::kLearningRate) << change[0];
    EXPECT_EQ(outcome.problems.messages().size(), 1u) << change[0];
    EXPECT_EQ(resume({}, change, {.overrides = {change[0]}}).problems.messages().size(), 1u)
        << "--override is not the flag for it";
  }
}

TEST(Resume, TheLengthOfTheRunIsPartOfTheScheduleWhereTheDecayEndsWithIt) {
  const Words longer = {"--train-iters", "30"};
  config::RunConfig config;
  OptionTable then("x", ""), now("x", "");
  config::RunConfig other;
  config::add_options(families::gpt_family(), then, config), config::add_options(families::gpt_family(), now, other);
  config.training.train_iters = 10, other.training.train_iters = 30;  // neither has --lr-decay-*
  Problems problems;
  const auto differences = config::compare_options(then, now, {}, problems);
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_EQ(differences[0].rule, ResumeRule::kLearningRate);
  EXPECT_EQ(problems.messages().size(), 1u);

  config.schedule.lr_decay_style = other.schedule.lr_decay_style = plan::DecayStyle::kConstant;
  Problems none;
  EXPECT_EQ(config::compare_options(then, now, {}, none)[0].rule, ResumeRule::kFree);
  EXPECT_TRUE(none.empty());
}

TEST(Resume, DataBlendSeedSequenceLengthAndGlobalBatchNeedTheirNameInOverride) {
  const std::vector<Words> changes = {{"--data-path", "1", "data/a", "2", "data/b"},
                                      {"--split", "90, 5, 5"},
                                      {"--seed", "7"},
                                      {"--seq-length", "8"},
                                      {"--global-batch-size", "8"},
                                      {"--rampup-batch-size", "2", "2", "100"},
                                      {"--train-weighted-split-paths", "T: 1 0:1 data/a"},
                                      {"--eod-mask-loss"},
                                      {"--reset-attention-mask"},
                                      {"--hidden-dropout", "0"},
                                      {"--weight-decay", "0.5"},
                                      {"--adam-beta2", "0.95"},
                                      {"--clip-grad", "2"},
                                      {"--openai-gelu"},
                                      {"--objective", "prefix"},
                                      {"--max-position-embeddings", "32"}};
  for (const Words& change : changes) {
    const Outcome without = resume({}, change);
    ASSERT_EQ(without.differences.size(), 1u) << change[0];
    ASSERT_EQ(without.problems.messages().size(), 1u) << change[0];
    EXPECT_NE(without.problems.messages()[0].find("or --override " + without.differences[0].key + "."),
              std::string::npos);
    for (const std::string& spelling : {change[0], without.differences[0].key}) {
      const Outcome with = resume({}, change, {.overrides = {"sample_order", spelling}});
      EXPECT_TRUE(with.problems.empty()) << with.problems.messages()[0];
    }
  }
  EXPECT_EQ(resume({}, {"--seed", "7"}).problems.messages(),
            Words{"--seed: the checkpoint has 1234, the command line 7. It changes what is learnt: give the "
                  "checkpoint's value, "
                  "or --override seed."});
}

TEST(Resume, TheShapeOfTheModelIsRefusedEvenWithOverrideAndWhenFinetuning) {
  const std::vector<Words> changes = {{"--num-layers", "3"},
                                      {"--hidden-size", "16"},
                                      {"--ffn-hidden-size", "9"},
                                      {"--num-attention-heads", "4"},
                                      {"--kv-channels", "3"},
                                      {"--embed-layernorm"},
                                      {"--pad-vocab-size-to", "64"},
                                      {"--untie-embeddings-and-output-weights"},
                                      {"--position-embedding-type", "absolute"}};
  for (const Words& change : changes) {
    EXPECT_EQ(resume({}, change, {.overrides = {change[0]}}).problems.messages().size(), 1u) << change[0];
    EXPECT_EQ(resume({}, change, {.finetune = true}).problems.messages().size(), 1u) << change[0];
  }
  EXPECT_EQ(resume({}, {"--num-layers", "3"}).problems.messages(),
            Words{"--num-layers: the checkpoint has 2, the command line 3. The shape of a model cannot change: give "
                  "the checkpoint's value."});
  EXPECT_TRUE(resume({"--pad-vocab-size-to", "64"}, {}).problems.empty()) << "the model keeps its own";
  // With learned positions their number is a shape.
  const Words learned = {"--position-embedding-type", "absolute"};
  EXPECT_EQ(resume(learned, {"--position-embedding-type", "absolute", "--max-position-embeddings", "32"},
                   {.overrides = {"max_position_embeddings"}})
                .problems.messages()
                .size(),
            1u);
}

TEST(Resume, FinetuningIsANewRunThatOnlyTheModelBinds) {
  const Outcome outcome =
      resume({}, {"--seed", "7", "--lr", "1", "--data-path", "data/b", "--finetune"}, {.finetune = true});
  EXPECT_TRUE(outcome.problems.empty());
  EXPECT_EQ(outcome.differences.size(), 4u);
}

TEST(Resume, EveryProblemIsReportedAtOnceAlsoAMisspeltOverride) {
  const Outcome outcome = resume({}, {"--num-layers", "3", "--seed", "7", "--lr", "1"}, {.overrides = {"sed"}});
  ASSERT_EQ(outcome.problems.messages().size(), 4u);
  EXPECT_EQ(outcome.problems.messages()[0], "--override sed: no such option; nearest: seed");
}

TEST(Resume, TheTableShowsBothValuesAndWhichIsUsed) {
  const Outcome outcome = resume({}, {"--lr", "2e-3", "--save", "elsewhere", "--exit-interval", "3"},
                                 {.use_checkpoint_lr_scheduler = true});
  EXPECT_EQ(config::to_table(outcome.differences),
            "  option         checkpoint  command line  used\n"
            "  exit_interval  (unset)     3             the command line's\n"
            "  lr             0.001       0.002         the checkpoint's\n"
            "  save           \"run\"       \"elsewhere\"   the command line's\n");
}

// What nobody has decided about must be asked for by name.
TEST(Resume, ARowThatSaysNothingCountsAsOneThatChangesWhatIsLearnt) {
  OptionTable table("p", "s");
  int64_t number = 0;
  EXPECT_EQ(table.add("--new", number, "a row").resume_rule(), ResumeRule::kOverride);
  EXPECT_EQ(table.add("--other", number, "a row").on_resume(ResumeRule::kFree).resume_rule(), ResumeRule::kFree);
}

TEST(Resume, ThePaddedVocabularyBelongsToTheModel) {
  const store::ModelFacts saved{
      .family = "gpt", .compute_type = "bf16", .vocab_size = 50257, .padded_vocab_size = 50304, .num_parameters = 1};
  store::ModelFacts present = saved;
  Problems none;
  config::check_model(saved, present, none);
  EXPECT_TRUE(none.empty());
  present.padded_vocab_size = 50432, present.family = "bert";
  Problems problems;
  config::check_model(saved, present, problems);
  EXPECT_EQ(problems.messages(),
            (Words{"the checkpoint is of model family 'gpt', this run trains 'bert'; use espalier train gpt",
                   "padded vocabulary: the checkpoint has 50,304 rows, this run would have "
                   "50,432. It was fixed when the model was "
                   "created: leave out --pad-vocab-size-to, or give --pad-vocab-size-to 50304."}));
}

TEST(Resume, TheTokenizerIsComparedByContentNotByPath) {
  const std::string content = "{\"a\": 0}";
  store::Manifest saved;
  saved.files = {{.path = "tokenizer/vocab.json", .bytes = 8, .hashed_bytes = 8, .checksum = hash64(content)}};
  Problems problems;
  config::check_tokenizer(saved, {{"tokenizer/vocab.json", content}}, {}, problems);
  EXPECT_TRUE(problems.empty());
  config::check_tokenizer(saved, {{"tokenizer/vocab.json", "{\"b\": 0}"}}, {.overrides = {"--tokenizer"}}, problems);
  EXPECT_TRUE(problems.empty());
  config::check_tokenizer(saved, {{"tokenizer/vocab.json", "{\"b\": 0}"}}, {}, problems);
  ASSERT_EQ(problems.messages().size(), 1u);
  EXPECT_NE(problems.messages()[0].find("tokenizer/vocab.json: the checkpoint was trained with checksum " +
                                        hex64(hash64(content))),
            std::string::npos);
}

TEST(Resume, AnotherSampleOrderOrRandomnessStopsAlthoughNoOptionDiffers) {
  store::TrainingState saved;
  saved.sample_order = "aaaa", saved.random_scheme = 1;
  store::TrainingState present = saved;
  Problems problems;
  config::check_order(saved, present, {}, {}, problems);
  EXPECT_TRUE(problems.empty());
  present.random_scheme = 2;
  const std::vector<std::string> changes = {"first", "second", "third", "fourth", "fifth", "sixth", "seventh"};
  config::check_order(saved, present, changes, {.overrides = {"sample-order", "random_scheme"}}, problems);
  EXPECT_TRUE(problems.empty());
  config::check_order(saved, present, changes, {}, problems);
  ASSERT_EQ(problems.messages().size(), 2u);
  EXPECT_NE(problems.messages()[0].find(":\n    first\n"), std::string::npos) << problems.messages()[0];
  EXPECT_NE(problems.messages()[0].find("\n    fifth\n    and 2 more\n"), std::string::npos) << problems.messages()[0];
}

TEST(Resume, WhoOverridesWhatDecidesTheOrderHasAskedForAnother) {
  store::TrainingState saved, present;
  saved.sample_order = "aaaa", saved.random_scheme = present.random_scheme = 1;
  for (const std::string name : {"seed", "seq_length", "split", "sample_order", "dataloader_type", "lr"}) {
    Problems problems;
    config::check_order(saved, present, {"the seed was 1 and is 2"}, {.overrides = {name}}, problems);
    EXPECT_EQ(problems.empty(), name != "lr") << name;
  }
}

TEST(Resume, AnImportedCheckpointHasNoOrderAndMayHaveNoTokenizer) {
  store::Manifest saved;
  store::TrainingState present;
  present.random_scheme = 1;
  Problems problems;
  config::check_order(saved.state, present, {"changed"}, {}, problems);
  config::check_tokenizer(saved, {{"tokenizer/vocab.json", "{}"}}, {}, problems);
  EXPECT_TRUE(problems.empty());
  ASSERT_EQ(config::environment_changes(saved.state, present).size(), 1u);
  // What lies beside a tokenizer is none.
  saved.files = {{.path = "tokenizer/generation_config.json", .bytes = 8, .hashed_bytes = 8, .checksum = 1}};
  config::check_tokenizer(saved, {{"tokenizer/vocab.json", "{}"}}, {}, problems);
  EXPECT_TRUE(problems.empty());
  saved.files.push_back({.path = "tokenizer/vocab.json", .bytes = 8, .hashed_bytes = 8, .checksum = 1});
  config::check_tokenizer(saved, {{"tokenizer/vocab.json", "{}"}}, {}, problems);
  EXPECT_EQ(problems.messages().size(), 1u);
}

TEST(Resume, WhatMovesTheLastBitsIsSaidOnce) {
  store::TrainingState saved;
  saved.random_scheme = 1;
  saved.layout = "tp1pp1dp1", saved.num_threads = 2, saved.cpu_type = "A", saved.libtorch_version = "2.11.0";
  store::TrainingState present = saved;
  EXPECT_EQ(config::environment_changes(saved, present), Words{});
  present.num_threads = 4, present.cpu_type = "B";
  EXPECT_EQ(config::environment_changes(saved, present),
            (Words{"threads: 2 when saved, now 4", "CPU: A when saved, now B"}));
}

TEST(Resume, AnotherTransportOrInstructionSetIsSaid) {
  store::TrainingState saved;
  saved.random_scheme = 1;
  saved.layout = "tp1pp1dp4", saved.transport = "shared memory", saved.instruction_set = "amx; libtorch AVX512";
  store::TrainingState present = saved;
  EXPECT_EQ(config::environment_changes(saved, present), Words{});
  present.transport = "Gloo", present.instruction_set = "avx2; libtorch AVX512";
  const std::string isa = "instruction set: amx; libtorch AVX512 when saved, now avx2; libtorch AVX512";
  EXPECT_EQ(config::environment_changes(saved, present),
            (Words{isa, "exchange between processes: shared memory when saved, now Gloo"}));
  present.layout = "tp1pp1dp1", present.transport = "none";
  EXPECT_EQ(config::environment_changes(saved, present), (Words{"layout: tp1pp1dp4 when saved, now tp1pp1dp1", isa}));
  saved.transport = saved.instruction_set = "";  // a checkpoint that does not say
  EXPECT_EQ(config::environment_changes(saved, present), (Words{"layout: tp1pp1dp4 when saved, now tp1pp1dp1"}));
}

}  // namespace resume_test
