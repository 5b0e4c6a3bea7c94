// DeepSpeed's JSON: what it fills, what stops a run, what is refused by name.
#include "config/deepspeed_config.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "base/format.h"

namespace espalier::config {
namespace {

using namespace test;

using Words = std::vector<std::string>;

struct WithJson : RunOptions {
  Problems problems;
  std::filesystem::path file = std::filesystem::temp_directory_path() / "espalier_deepspeed_config_test.json";

  WithJson(const std::string& flags, const std::string& json, int64_t num_ranks = 2, bool say_notes = false)
      : RunOptions(families::gpt_family()) {
    write_file_atomically(file, json);
    table.say_notes(say_notes);
    table.parse(split_blanks("--num-layers 2 --hidden-size 48 --num-attention-heads 4 --seq-length 33 "
                             "--max-position-embeddings 33 --train-iters 10 --micro-batch-size 3 --deepspeed "
                             "--deepspeed_config " +
                             file.string() + " " + flags),
                problems);
    config.num_ranks = num_ranks;
    read_deepspeed_config(config, table, problems);
    resolve(config, table, problems);
  }
  ~WithJson() { std::filesystem::remove(file); }
  // The messages with the file's name as F.
  Words messages() const {
    Words texts = problems.messages();
    for (std::string& text : texts)
      for (size_t at; (at = text.find(file.string())) != std::string::npos;)
        text.replace(at, file.string().size(), "F");
    return texts;
  }
};

// The block of the smaller BLOOM models.
const std::string kFp16 =
    R"("fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 500, "hysteresis": 3, "min_loss_scale": 2,)"
    R"( "initial_scale_power": 12})";

TEST(DeepSpeedConfig, FillsWhatNoOptionGives) {
  const WithJson run("--fp16",
                     R"({"train_micro_batch_size_per_gpu": 3, "train_batch_size": 12, "gradient_clipping": 0.5,
      "zero_optimization": {"stage": 2}, "communication_data_type": "bfp16", "optimizer": {"type": "AdamW", "params":
      {"lr": 3e-4, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.25}}, )" +
                         kFp16 + "}");
  EXPECT_EQ(run.messages(), Words{});
  EXPECT_EQ(run.config.training.global_batch_size, 12);
  EXPECT_EQ(run.config.optimizer.clip_grad, 0.5);
  EXPECT_EQ(run.config.parallel.zero_stage, 2);
  EXPECT_EQ(run.config.parallel.grad_reduce_type, GradReduceType::kBf16);
  EXPECT_EQ(run.config.schedule.lr, 3e-4);
  EXPECT_EQ(run.config.optimizer.adam_beta1, 0.8);
  EXPECT_EQ(run.config.optimizer.adam_beta2, 0.95);
  EXPECT_EQ(run.config.optimizer.adam_eps, 1e-6);
  EXPECT_EQ(run.config.optimizer.weight_decay, 0.25);
  EXPECT_EQ(run.config.optimizer.loss_scale, 0);
  EXPECT_EQ(run.config.optimizer.initial_loss_scale, 4096);
  EXPECT_EQ(run.config.optimizer.loss_scale_window, 500);
  EXPECT_EQ(run.config.optimizer.hysteresis, 3);
  EXPECT_EQ(run.config.optimizer.min_loss_scale, 2);
}

TEST(DeepSpeedConfig, AbsenceAndAutoAreReadAsDeepSpeedDoes) {
  const WithJson fp16("--lr 1e-3 --fp16", R"({"fp16": {"enabled": true}})");
  EXPECT_EQ(fp16.messages(), Words{});
  EXPECT_EQ(fp16.config.optimizer.initial_loss_scale, 65536);
  EXPECT_EQ(fp16.config.parallel.zero_stage, 0);
  EXPECT_EQ(fp16.config.optimizer.clip_grad, 1);
  const WithJson bf16("--lr 1e-3 --bf16", R"({"bfloat16": {"enabled": true}, "zero_optimization": {"stage": 0}})");
  EXPECT_EQ(bf16.messages(), Words{});
  EXPECT_EQ(bf16.config.parallel.zero_stage, 1);
  EXPECT_NE(bf16.config.parallel.zero_reason, "");
  const WithJson flags("--lr 1e-3 --bf16 --clip-grad 2 --zero-stage 1 --global-batch-size 18", R"({"bf16": {"enabled":
      "auto"}, "gradient_clipping": "auto", "train_batch_size": "auto", "zero_optimization": {"stage": "auto"}})");
  EXPECT_EQ(flags.messages(), Words{});
  EXPECT_EQ(flags.config.optimizer.clip_grad, 2);
  EXPECT_EQ(flags.config.training.global_batch_size, 18);
}

// Of the smaller BLOOM models: --loss-scale 12 with a file that has 0. DeepSpeed scales the loss, and never sees the
// flag.
TEST(DeepSpeedConfig, ItsLossScaleWinsOverTheOptionsWithAWarning) {
  testing::internal::CaptureStderr();
  const WithJson run("--lr 1e-3 --fp16 --loss-scale 12 --hysteresis 4 --min-loss-scale 2 --initial-loss-scale 4096",
                     "{" + kFp16 + "}", 2, /*say_notes=*/true);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(run.messages(), Words{});
  EXPECT_EQ(run.config.optimizer.loss_scale, 0);
  EXPECT_EQ(run.config.optimizer.hysteresis, 3);
  EXPECT_EQ(run.config.optimizer.initial_loss_scale, 4096);
  EXPECT_NE(said.find("--loss-scale 12.0 (command line) has no effect: DeepSpeed scales the loss only by its file, "
                      "where fp16.loss_scale is 0 ("),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("--hysteresis 4 (command line) has no effect"), std::string::npos) << said;
  EXPECT_EQ(said.find("--min-loss-scale"), std::string::npos) << said;
}

// Where the file has no key, DeepSpeed's default holds.
TEST(DeepSpeedConfig, ItsDefaultsForTheLossScaleWinToo) {
  testing::internal::CaptureStderr();
  const WithJson run("--lr 1e-3 --fp16 --loss-scale 128 --initial-loss-scale 8 --loss-scale-window 500",
                     R"({"fp16": {"enabled": true, "loss_scale_window": "auto"}})", 2, /*say_notes=*/true);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(run.messages(), Words{});
  EXPECT_EQ(run.config.optimizer.loss_scale, 0);
  EXPECT_EQ(run.config.optimizer.initial_loss_scale, 65536);
  EXPECT_EQ(run.config.optimizer.loss_scale_window, 500);
  EXPECT_NE(said.find("where fp16.loss_scale, DeepSpeed's default, is 0"), std::string::npos) << said;
}

TEST(DeepSpeedConfig, WhatDisagreesStopsTheRunAndShowsBoth) {
  const WithJson run("--lr 1e-3 --bf16 --clip-grad 1.0 --zero-stage 0 --global-batch-size 12",
                     R"({"train_micro_batch_size_per_gpu": 2, "train_batch_size": 24, "gradient_clipping": 0.5,
                     "zero_optimization": {"stage": 1}, "bf16": {"enabled": false}, "fp16": {"enabled": true}})");
  EXPECT_EQ(run.messages(),
            (Words{"--micro-batch-size 3 (command line) and train_micro_batch_size_per_gpu 2 (F) disagree; make them "
                   "equal",
                   "--global-batch-size 12 (command line) and train_batch_size 24 (F) disagree; make them equal",
                   "--clip-grad 1.0 (command line) and gradient_clipping 0.5 (F) disagree; make them equal",
                   "--bf16 is given, and bf16.enabled is false (F): they disagree; make it true",
                   "--fp16 is not given, and fp16.enabled is true (F): they disagree; add it, or make it false",
                   "--zero-stage 0 (command line) and zero_optimization.stage 1 (F) disagree; make them equal"}));
  EXPECT_EQ(WithJson("--lr 1e-3 --bf16", "{}").messages(),
            Words{"--bf16 is given, and bf16.enabled is missing (F): they disagree; write true there"});
  EXPECT_EQ(WithJson("--lr 1e-3 --clip-grad 0.50", R"({"gradient_clipping": 0.5})").messages(), Words{});
}

TEST(DeepSpeedConfig, AccumulationFollowsFromTheBatchSizes) {
  EXPECT_EQ(WithJson("--lr 1", R"({"gradient_accumulation_steps": 4})").config.training.global_batch_size, 24);
  EXPECT_EQ(WithJson("--lr 1 --global-batch-size 24", R"({"gradient_accumulation_steps": 4})").messages(), Words{});
  EXPECT_EQ(WithJson("--lr 1 --global-batch-size 12", R"({"gradient_accumulation_steps": 4})").messages(),
            Words{"--global-batch-size 12 (command line) is not 24: --micro-batch-size 3 (command line) * "
                  "gradient_accumulation_steps 4 (F) * data-parallel size 2; leave gradient_accumulation_steps out"});
}

TEST(DeepSpeedConfig, KeysAreRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"gradient_cliping": 1})", "F: unknown key gradient_cliping; did you mean gradient_clipping?"},
      {R"({"zero_optimization": {"stagee": 1}})", "F: unknown key zero_optimization.stagee; did you mean stage?"},
      {R"({"xyzzy": 1})", "F: unknown key xyzzy; leave it out"},
      {R"({"scheduler": {"type": "WarmupLR"}})",
       "F: scheduler is not supported: use --lr-decay-style, --lr-warmup-samples, --lr-decay-samples and --min-lr"},
      {R"({"curriculum_learning": {"enabled": true}})",
       "F: curriculum_learning is not supported: the sequence length is constant; leave it out"},
      {R"({"zero_optimization": {"offload_optimizer": {"device": "cpu"}}})",
       "F: zero_optimization.offload_optimizer is not supported: offload is not built in; leave it out"},
      {R"({"optimizer": {"type": "OneBitAdam"}})",
       "F: optimizer.type OneBitAdam is not supported: use Adam or AdamW, or leave the block out and give --optimizer"},
      {R"({"optimizer": {"params": {"adam_w_mode": false}}})",
       "F: optimizer.params.adam_w_mode false is not supported: weight decay is decoupled"},
      {R"({"optimizer": {"params": {"betas": [0.9]}}})",
       "F: optimizer.params.betas [0.9] are not two numbers, such as [0.9, 0.999]"},
      {R"({"data_types": {"grad_accum_dtype": "bf16"}})",
       "F: data_types.grad_accum_dtype bf16 is not supported: gradients are always summed in fp32; write fp32, or "
       "leave it out"},
      {R"({"communication_data_type": "fp16"})", "F: communication_data_type fp16 is not supported: use fp32 or bfp16"},
      {R"({"gradient_clipping": "much"})", "F: gradient_clipping \"much\" is not a number"},
      {R"({"fp16": {"enabled": 1}})", "F: fp16.enabled 1 is neither true nor false"},
      {R"({"fp16": true})", "F: fp16 true is not an object; write {...}"},
      {R"({"gradient_accumulation_steps": 0})", "F: gradient_accumulation_steps 0 is not an integer of 1 or more"},
      {R"({"zero_optimization": {"stage": 4}})",
       "--zero-stage 4 (F: zero_optimization.stage) is above the largest "
       "value, 3"},
      {R"({"steps_per_print": 1, "steps_per_print": 2})",
       "F: the key steps_per_print occurs twice in one object; "
       "keep one"},
      {"[]", "F is not a JSON object, as DeepSpeed's configuration is"},
  };
  for (const auto& [json, message] : cases) EXPECT_EQ(WithJson("--lr 1e-3", json).messages(), Words{message}) << json;
  const Words broken = WithJson("--lr 1e-3", "{").messages();
  ASSERT_EQ(broken.size(), 1U);
  EXPECT_TRUE(broken[0].starts_with("F: ")) << broken[0];
  EXPECT_NE(broken[0].find("expected JSON, found"), std::string::npos) << broken[0];
  const WithJson off("--lr 1e-3", R"({"curriculum_learning": {"enabled": false}, "scheduler": null, "zero_optimization":
      {"stage": 0, "offload_optimizer": {"device": "none", "pin_memory": true}},
      "flops_profiler": {"enabled": true}})");
  EXPECT_EQ(off.messages(), Words{});
}

TEST(DeepSpeedConfig, IsReadOnlyUnderDeepSpeedAndMustExist) {
  EXPECT_EQ(WithJson("--lr 1e-3 --deepspeed=false", "{}").messages(),
            Words{"--deepspeed_config F (command line) is read only with --deepspeed; add it, or leave the file out"});
  const Words missing = WithJson("--lr 1e-3 --deepspeed_config /nowhere.json", "{}").messages();
  ASSERT_EQ(missing.size(), 1U);
  EXPECT_NE(missing[0].find("--deepspeed_config: "), std::string::npos) << missing[0];
  EXPECT_NE(missing[0].find("/nowhere.json"), std::string::npos) << missing[0];
}

}  // namespace
}  // namespace espalier::config
