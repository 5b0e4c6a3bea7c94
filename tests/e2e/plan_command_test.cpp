// `espalier plan` as a user meets it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "tests/support/command.h"

namespace espalier {
namespace {

using Json = nlohmann::json;

class PlanCommand : public Command {
 protected:
  // The flags of bigscience's tr11-176B-ml.slurm, but for the paths of its files.
  const std::string bloom_ =
      "espalier plan gpt --pp-partition-method 'type:transformer|embedding' --num-layers 70 --hidden-size 14336 "
      "--num-attention-heads 112 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 2 "
      "--rampup-batch-size 192 16 9_765_625 --global-batch-size 2048 --train-samples 220_000_000 --tokenizer-type "
      "PretrainedFromHF --tokenizer-name-or-path bigscience-catalogue-data-dev/byte-level-bpe-tokenizer "
      "--init-method-std "
      "0.0048 --embed-layernorm --sync-tp-duplicated-parameters --bf16 --seed 42 --position-embedding-type alibi "
      "--checkpoint-activations --abort-on-unmet-fused-kernel-constraints --kill-switch-path k --pad-vocab-size-to "
      "250880 --optimizer adam --adam-beta1 0.9 --adam-beta2 0.95 --adam-eps 1e-8 --lr 6e-5 --min-lr 6e-6 "
      "--lr-decay-style cosine --lr-decay-samples 200_000_000 --lr-warmup-samples 183_105 --clip-grad 1.0 "
      "--weight-decay 1e-1 --exit-duration-in-mins 5990 --log-interval 1 --save-interval 100 --eval-interval 1000 "
      "--eval-iters 1 --tensorboard-dir t --deepspeed --zero-stage 0 --deepspeed-activation-checkpointing "
      "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 12 --save P --load P "
      "--train-weighted-split-paths-path a --valid-weighted-split-paths-path b --num-workers 2 --valid-num-workers 0 "
      "--data-impl mmap --distributed-backend nccl ";
  const std::string small_ =
      "espalier plan gpt --num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 512 "
      "--max-position-embeddings 512 --lr 1e-3 --train-iters 10 --micro-batch-size 4 --global-batch-size 32 "
      "--pad-vocab-size-to 51200 ";
};

TEST_F(PlanCommand, ReproducesBloom176BWithoutDataOrTokenizer) {
  const Outcome outcome = bash(bloom_ + "--gpus 384 --gpu-memory 80GiB --json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_LT(outcome.seconds, 2);
  const Json plan = Json::parse(outcome.output);
  EXPECT_EQ(plan.at("parameters"), 176'247'271'424);
  EXPECT_EQ(plan.at("data"), 8);
  EXPECT_EQ(plan.at("micro_batches"), 128);
  EXPECT_NEAR(plan.at("bubble").get<double>(), 11 / 139.0, 1e-12);
  EXPECT_EQ(plan.at("bytes_per_parameter"), 7.5);
  EXPECT_EQ(plan.at("stages").size(), 12U);
  EXPECT_EQ(plan.at("stages").at(0).at("layers"), Json::parse("[[0, 5]]"));
  EXPECT_EQ(plan.at("fits"), true);
  const Outcome text = bash(bloom_ + "--gpus 384 --svg bloom.svg");
  ASSERT_EQ(text.exit_code, 0) << text.errors;
  for (const char* part :
       {"176,247,271,424 parameters", "bubble 7.9 %", "its weights 328.", "2.29 TiB",
        "--zero-stage 0 under --deepspeed with --bf16 is read as 1", "embedding, layers 0-4", "layers 65-69, output"})
    EXPECT_NE(text.output.find(part), std::string::npos) << part << " in\n" << text.output;
  EXPECT_TRUE(read_file(folder_ / "work/bloom.svg").starts_with("<svg "));
}

// Two copies of 2 bytes of weights, 4 of the master and 8 of the moments; four where another machine's come as well.
TEST_F(PlanCommand, CountsTheCopiesOfTheStateInMemory) {
  const std::string run = small_ + "--bf16 --zero-stage 0 ";
  const Json without = Json::parse(bash(run + "--gpus 1 --json").output);
  EXPECT_FALSE(without.contains("copies_bytes"));
  const double once = 28.0 * without.at("parameters").get<double>();
  const Json with = Json::parse(bash(run + "--gpus 1 --non-persistent-save-interval 1 --json").output);
  EXPECT_EQ(with.at("copies_bytes"), once);
  // Eight tensor ranks fill a machine. Their state has a replica on the second one, unless that has other stages.
  const std::string machines =
      "--non-persistent-save-interval 1 --replication --machine a100-80gb --nodes 2 "
      "--tensor-model-parallel-size 8 --json ";
  const auto copies_of_states = [&](const std::string& more) {
    const Json plan = Json::parse(bash(run + machines + more).output);
    double state = 0;
    for (const Json& stage : plan.at("stages"))
      state = std::max(state, stage.at("weights_bytes").get<double>() + stage.at("optimizer_bytes").get<double>());
    return plan.at("copies_bytes").get<double>() / state;
  };
  EXPECT_EQ(copies_of_states(""), 2);
  EXPECT_EQ(copies_of_states("--pipeline-model-parallel-size 2"), 4);
  const Outcome text = bash(run + "--gpus 1 --non-persistent-save-interval 1");
  EXPECT_NE(text.output.find("Copies of the state (--non-persistent-save-interval): " + format_bytes(once) + " of"),
            std::string::npos)
      << text.output;
}

TEST_F(PlanCommand, RecipesArePlanned) {
  const Outcome outcome = bash(concat("espalier plan gpt --gpus 384 --recipe ", root(), "/recipes/bloom-176b.toml"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.output.find("176,247,271,424"), std::string::npos) << outcome.output;
}

// The bars of a row together are as long as the step takes, and those below as long as the memory is large.
TEST_F(PlanCommand, TheSearchIsDrawn) {
  const Outcome outcome =
      bash(small_ +
           "--bf16 --machine h100 --gpus 8 --search --svg search.svg --json && "
           "grep -o '<rect class=\"[a-z]\" .*width=\"[0-9.]*\"\\|<text x=\"[0-9.]*\" .*data [0-9]*<' search.svg >&2");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const Json best = Json::parse(outcome.output).at("best");
  ASSERT_GT(best.size(), 2U);
  std::vector<double> rows;  // widths, of the times and then of the memory
  for (const std::string& line : split(outcome.errors, '\n')) {
    if (line.starts_with("<text")) rows.push_back(0);
    const size_t at = line.find(" width=\"");
    if (at != std::string::npos && !rows.empty() && line.find("width=\"12\"") == std::string::npos)
      rows.back() += std::stod(line.substr(at + 8));
  }
  ASSERT_EQ(rows.size(), 2 * best.size()) << outcome.errors;
  for (size_t i = 1; i < best.size(); ++i) {
    const Json &first = best.at(0), &other = best.at(i);
    EXPECT_NEAR(rows[i] / rows[0], other.at("step_seconds").get<double>() / first.at("step_seconds").get<double>(),
                1e-3);
    EXPECT_NEAR(rows[best.size() + i] / rows[best.size()],
                other.at("peak_bytes").get<double>() / first.at("peak_bytes").get<double>(), 1e-3);
  }
}

TEST_F(PlanCommand, WhatDoesNotFitIsSaidWithWhatWould) {
  const Outcome outcome = bash(small_ + "--bf16 --gpu-memory 2GiB");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.output.find("does not fit into 2.00 GiB"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("What fits, after the same flags:\n  --"), std::string::npos) << outcome.output;
  const Json plan = Json::parse(bash(small_ + "--bf16 --gpu-memory 2GiB --json").output);
  EXPECT_EQ(plan.at("fits"), false);
  const std::string flags = plan.at("choices_that_fit").at(0).at("flags");
  EXPECT_EQ(Json::parse(bash(small_ + "--bf16 --gpu-memory 2GiB --json " + flags).output).at("fits"), true) << flags;
}

TEST_F(PlanCommand, AMachineGivesTimeEnergyAndBill) {
  const std::string bloom = concat("espalier plan gpt --recipe ", root(), "/recipes/bloom-176b.toml --machine ", root(),
                                   "/recipes/machines/jean-zay-a100.toml --nodes 48 --gpu-hour-price 2 ");
  const Outcome outcome = bash(bloom + "--json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const Json plan = Json::parse(outcome.output), time = plan.at("time");
  EXPECT_EQ(plan.at("processes"), 384);
  EXPECT_EQ(plan.at("fits"), true) << "into the machine's memory";
  EXPECT_NEAR(time.at("step_seconds").get<double>(), 105, 5.25);
  EXPECT_EQ(time.at("limited_by"), "compute");
  EXPECT_EQ(time.at("steps"), 115'311) << "of the log: iteration 12695/ 115311";
  EXPECT_EQ(time.at("tokens"), 220e6 * 2048);
  EXPECT_NEAR(time.at("price").get<double>(), 2 * time.at("device_hours").get<double>(), 1e-3);
  EXPECT_NEAR(time.at("device_kwh").get<double>(), 0.4 * time.at("device_hours").get<double>(), 1e-3);
  EXPECT_EQ(time.at("periods").front().at("global_batch_size"), 192);
  EXPECT_EQ(time.at("machine").at("numbers").at("ring_bandwidth"), 5.06e9);
  EXPECT_TRUE(time.at("machine").at("sources").contains("ring_bandwidth"));
  double parts = 0;
  for (const Json& seconds : time.at("parts_seconds")) parts += seconds.get<double>();
  EXPECT_NEAR(parts, time.at("step_seconds").get<double>(), 1e-6);

  const Outcome text = bash(bloom + "--tokens 1_000_000_000 --sources");
  ASSERT_EQ(text.exit_code, 0) << text.errors;
  for (const char* part :
       {"machine      Jean Zay", "a prediction from published rates", "limited by   compute", "1e+09 tokens",
        "pipeline bubble", "USD at 2 a device-hour", "What this comes from", "Korthikanti et al. 2022"})
    EXPECT_NE(text.output.find(part), std::string::npos) << part << " in\n" << text.output;
}

TEST_F(PlanCommand, FailuresHaveAPrice) {
  const std::string bloom = concat("espalier plan gpt --recipe ", root(), "/recipes/bloom-176b.toml --machine ", root(),
                                   "/recipes/machines/jean-zay-a100.toml --nodes 48 --faults llama3 ");
  const Outcome outcome = bash(bloom + "--json --restart-seconds 600 --fault-days 90");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const Json failures = Json::parse(outcome.output).at("time").at("failures");
  EXPECT_NEAR(failures.at("faults_per_day").get<double>(), 48 * 419 / (54.0 * 2048), 1e-12);
  EXPECT_EQ(failures.at("restart_seconds"), 600);
  EXPECT_EQ(failures.at("save_interval"), 100);
  EXPECT_GE(failures.at("best_ettr"), failures.at("ettr"));
  EXPECT_NEAR(failures.at("simulation").at("mean_ettr").get<double>(), failures.at("ettr").get<double>(), 0.002);
  EXPECT_NEAR(failures.at("simulation").at("days").get<double>(), 90, 1e-9);
  const Outcome text = bash(bloom);
  for (const char* part :
       {"failures     0.182 a day on 48 nodes, by llama3", "as asked, every 100 steps", "seeded runs", "undisturbed"})
    EXPECT_NE(text.output.find(part), std::string::npos) << part << " in\n" << text.output;
  const Outcome wrong = bash(bloom + "--faults many");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.errors.find("--faults many is neither a published rate (llama3, rsc-1, rsc-2) nor a number"),
            std::string::npos)
      << wrong.errors;
}

TEST_F(PlanCommand, TheBatchHasATimetableAndNodesMayChange) {
  const std::string bloom = concat("espalier plan gpt --recipe ", root(), "/recipes/bloom-176b.toml --machine ", root(),
                                   "/recipes/machines/jean-zay-a100.toml --nodes 48 --timetable --node-changes ");
  const Outcome outcome = bash(bloom + "--json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const Json changes = Json::parse(outcome.output).at("time").at("node_changes");
  // A copy takes six nodes: a node less idles five more, a node more is a spare.
  ASSERT_EQ(changes.size(), 5U);
  EXPECT_EQ(changes.at(0).at("nodes"), 42);
  EXPECT_EQ(changes.at(1).at("spare_devices"), 40);
  EXPECT_EQ(changes.at(1).at("global_batch_size"), 2044) << "146 micro-batches of 2 on each of 7 copies";
  EXPECT_EQ(changes.at(3).at("spare_devices"), 8);
  EXPECT_EQ(changes.at(3).at("step_seconds"), changes.at(2).at("step_seconds"));
  EXPECT_LT(changes.at(4).at("days"), changes.at(2).at("days"));
  const Outcome text = bash(bloom);
  for (const char* part :
       {"Timetable of the batch, micro-batches of 2", "One node more or less, with copies of 48 devices"})
    EXPECT_NE(text.output.find(part), std::string::npos) << part << " in\n" << text.output;
  EXPECT_NE(bash(small_ + "--timetable").errors.find("--timetable (command line) needs --machine"), std::string::npos);
}

TEST_F(PlanCommand, ASearchGivesFlagsThatPlanTheSame) {
  const std::string bloom =
      concat("espalier plan gpt --recipe ", root(), "/recipes/bloom-176b.toml --machine a100-80gb ");
  const Outcome outcome = bash(bloom + "--nodes 48 --search --json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const Json result = Json::parse(outcome.output);
  ASSERT_EQ(result.at("best").size(), 10U);
  EXPECT_FALSE(result.at("fell_out").empty());
  for (const size_t at : {0, 4, 9}) {
    const Json& choice = result.at("best").at(at);
    const Json plan = Json::parse(bash(bloom + "--nodes 48 --json " + choice.at("flags").get<std::string>()).output);
    EXPECT_EQ(plan.at("time").at("step_seconds"), choice.at("step_seconds")) << choice;
    EXPECT_NEAR(plan.at("peak_bytes").get<double>(), choice.at("peak_bytes").get<double>(), 1) << choice;
    EXPECT_EQ(plan.at("fits"), true) << choice;
  }
  const Outcome text = bash(small_ + "--bf16 --machine h100 --gpus 8 --search");
  ASSERT_EQ(text.exit_code, 0) << text.errors;
  for (const char* part : {"ways to use 8 devices", "Ruled out:", "The first, after the same flags:\n  --tensor"})
    EXPECT_NE(text.output.find(part), std::string::npos) << part << " in\n" << text.output;
  EXPECT_NE(bash(small_ + "--search").errors.find("--search (command line) needs --machine"), std::string::npos);
  EXPECT_NE(bash(small_ + "--search --machine h100").errors.find("needs --nodes or --gpus"), std::string::npos);
  const Outcome fixed = bash(small_ +
                             "--search --machine h100 --nodes 1 --num-layers-per-virtual-pipeline-stage 1 "
                             "--pipeline-model-parallel-size 2");
  EXPECT_EQ(fixed.exit_code, 2);
  EXPECT_NE(fixed.errors.find("--search chooses the schedule"), std::string::npos) << fixed.errors;
}

TEST_F(PlanCommand, ASearchThatFindsNothingHasAnExitCodeAndSaysWhatWouldFit) {
  const std::string search = small_ + "--bf16 --machine h100 --search ";
  const Outcome text = bash(search + "--gpus 2 --gpu-memory 1GiB");
  EXPECT_EQ(text.exit_code, 3) << text.errors;
  EXPECT_NE(text.output.find(": 0 fit;"), std::string::npos) << text.output;
  for (const char* part : {"nothing fits on 2 devices of 1.00 GiB: the nearest (tensor 2, pipeline 1, micro-batch 1",
                           " too much. It would fit with --gpus "})
    EXPECT_NE(text.errors.find(part), std::string::npos) << part << " in\n" << text.errors;
  // What is said to fit does.
  const size_t at = text.errors.find("--gpus ");
  const std::string gpus = text.errors.substr(at, text.errors.find(':', at) - at);
  EXPECT_EQ(bash(search + gpus + " --gpu-memory 1GiB").exit_code, 0) << gpus;

  const Outcome json = bash(search + "--gpus 2 --gpu-memory 1GiB --json");
  EXPECT_EQ(json.exit_code, 3);
  EXPECT_TRUE(Json::parse(json.output).at("best").empty());

  const Outcome batch = bash(search + "--num-layers 4 --gpus 7 --global-batch-size 8");
  EXPECT_EQ(batch.exit_code, 3);
  EXPECT_NE(batch.errors.find("do not divide the batch"), std::string::npos) << batch.errors;
  EXPECT_NE(batch.errors.find("It would fit with --global-batch-size 7:"), std::string::npos) << batch.errors;
}

TEST_F(PlanCommand, MachinesThatAreNoneAreRefused) {
  const Outcome outcome = bash(small_ + "--machine a100 --nodes 1");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(
      outcome.errors.find("--machine a100: no machine of that name is built in (there are a100-80gb and h100), and "
                          "there is no such file"),
      std::string::npos)
      << outcome.errors;
  const Outcome alone = bash(small_ + "--nodes 2 --tokens 5");
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_NE(alone.errors.find("--nodes 2 (command line) needs --machine"), std::string::npos) << alone.errors;
  EXPECT_NE(alone.errors.find("--tokens 5 (command line) needs --machine"), std::string::npos) << alone.errors;
  const Outcome both = bash(small_ + "--machine h100 --nodes 2 --gpus 8");
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_NE(both.errors.find("of 8 devices, 16, do not agree; give one of them"), std::string::npos) << both.errors;
}

TEST_F(PlanCommand, LayoutsThatCannotWorkAreRefusedWithTheNearest) {
  const Outcome outcome =
      bash(small_ + "--tensor-model-parallel-size 3 --pipeline-model-parallel-size 2 --gpus 8 --gpu-memory much");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.output, "");
  for (const char* part :
       {"8 processes cannot be divided into copies of the model of 6 (tensor 3 * context 1 * pipeline 2); use 6 or 12",
        "--tensor-model-parallel-size 3 (command line) does not divide --num-attention-heads 16 (command line); use 2 "
        "or 4",
        "--gpu-memory much (command line) is not an amount of memory; use bytes, or a unit: 80GiB, 512MiB, 80GB"})
    EXPECT_NE(outcome.errors.find(part), std::string::npos) << part << " in\n" << outcome.errors;
}

TEST_F(PlanCommand, UnknownVocabulariesFlagsAndFamiliesAreNamed) {
  const std::string no_vocabulary =
      "espalier plan gpt --num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
      "--max-position-embeddings 32 --lr 1e-3 --train-iters 10 --micro-batch-size 4 ";
  const Outcome missing = bash(no_vocabulary);
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_NE(missing.errors.find("give --pad-vocab-size-to, or the tokenizer's files"), std::string::npos)
      << missing.errors;
  const std::string files = concat("--vocab-file ", root(), "/tests/data/gpt2-tiny/vocab.json --merge-file ", root(),
                                   "/tests/data/gpt2-tiny/merges.txt");
  const Outcome found = bash(no_vocabulary + files);
  EXPECT_EQ(found.exit_code, 0) << found.errors;
  EXPECT_NE(found.output.find("vocabulary 5,120"), std::string::npos) << found.output;
  EXPECT_NE(bash("espalier plan gpt --gpu 8").errors.find("did you mean --gpus"), std::string::npos);
  EXPECT_NE(bash("espalier plan").errors.find("usage: espalier plan FAMILY --gpus N"), std::string::npos);
  const Outcome unknown = bash("espalier plan gtp");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(
      unknown.errors.find("'gtp' is not a model family: there are gpt, bert, t5, bert-task, ict, ict-task and retro"),
      std::string::npos)
      << unknown.errors;
  const Outcome help = bash("espalier plan gpt --help=plan");
  EXPECT_EQ(help.exit_code, 0) << help.errors;
  EXPECT_NE(help.output.find("--gpu-memory"), std::string::npos) << help.output;
}

}  // namespace
}  // namespace espalier
