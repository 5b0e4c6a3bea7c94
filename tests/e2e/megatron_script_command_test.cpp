// Launch scripts of Megatron-DeepSpeed are planned and checked as they stand, unscaled.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "tests/support/command.h"
#include "tests/support/launch_script.h"

namespace espalier {
namespace megatron_script_command_test {

class MegatronScriptCommand : public Command {
 protected:
  // bigscience's tr11-176B-ml.slurm with what its paths name. At its end, instead of the ranks: `launch`.
  std::string bloom(const std::string& launch, const Replacements& replacements = {}) const {
    const std::string tokenizer =
        "bigscience-catalogue-data-dev/byte-level-bpe-tokenizer-no-norm-250k-whitespace-and-eos-regex-alpha-v3-dedup-"
        "lines-articles/";
    const std::string folder = "$six_ALL_CCFRWORK/code/tr11-176B-ml/Megatron-DeepSpeed";
    const std::string data = "$PWD/data_text_document";
    return concat("export six_ALL_CCFRWORK=$PWD/work six_ALL_CCFRSCRATCH=$PWD/scratch SLURM_JOB_ID=1 SLURM_NNODES=48\n",
                  "mkdir -p ", folder, "/data ", folder, "/", tokenizer, "\n", "cp ", root(),
                  "/tests/data/tokenizers/bloom/tokenizer.json ", folder, "/", tokenizer, "\n",  //
                  "espalier preprocess --input ", root(), "/tests/data/owt-20.jsonl --output-prefix data ",
                  "--tokenizer-type PretrainedFromHF --tokenizer-name-or-path ", folder, "/", tokenizer,
                  " 2>/dev/null\n", "echo \"\\\"train: 1 0:0.95 ", data, "\\\"\" >", folder, "/data/train-splits.txt\n",
                  "echo \"\\\"valid: 1 0.95:1 ", data, "\\\" \\\"valid_en: 1 0.95:1 ", data, "\\\"\" >", folder,
                  "/data/valid-splits.txt\n",
                  replaced(launch_script("tr11-176B-ml.sh", without_slurm(), replacements),
                           {{"set -x -e", "set -e"},
                            {"SLURM_PROCID=0 bash -c \"$LAUNCHER --node_rank \\$SLURM_PROCID $CMD\" 2>&1 | tee -a "
                             "$LOGS_PATH/main_log.txt",
                             launch}}));
  }
  // The plan of the script for that many GPUs; `say` is --json or nothing.
  static std::string plan(int gpus, const std::string& say = "") {
    return concat("bash -c \"espalier plan gpt --gpus ", gpus, " ", say, " ${CMD#*pretrain_gpt.py}\"");
  }
};

// The first of the 384 processes, by the environment that torchrun gives it.
constexpr const char* kFirstOf384 =
    "RANK=0 WORLD_SIZE=384 LOCAL_RANK=0 LOCAL_WORLD_SIZE=8 MASTER_ADDR=127.0.0.1 MASTER_PORT=6000 "
    "bash -c \"espalier $CMD --validate-only\"";

void expect_parts(const std::string& text, const std::vector<const char*>& parts) {
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST_F(MegatronScriptCommand, Bloom176BIsPlannedAsItStands) {
  const Outcome outcome = bash(bloom(plan(384)));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  expect_parts(outcome.output, {"176,247,271,424 parameters", "bubble 7.9 %",
                                "--zero-stage 0 under --deepspeed with --bf16 is read as 1"});
  expect_parts(outcome.errors, {"steps_per_print (use --log-interval)", "wall_clock_breakdown ("});
}

TEST_F(MegatronScriptCommand, Bloom176BValidatesAsItStands) {
  const Outcome outcome = bash(bloom(kFirstOf384));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  expect_parts(outcome.errors, {"valid: 176,247,271,424 parameters, bf16; 115,311 steps, 220,000,000 samples",
                                "read as 1: DeepSpeed's bf16 optimizer"});
}

TEST_F(MegatronScriptCommand, JsonAndFlagsThatDisagreeStopTheRun) {
  const Outcome outcome =
      bash(bloom("bash -c \"espalier plan gpt --gpus 384 ${CMD#*pretrain_gpt.py} --clip-grad 0.5\""));
  EXPECT_EQ(outcome.exit_code, 2);
  expect_parts(outcome.errors,
               {"--clip-grad 0.5 (command line) and gradient_clipping 1.0 (./ds_config.1.json) disagree"});
}

// The scripts of the smaller models, tr11b to tr11f: the same text but for these. `parameters` are those of the
// published models bloom-560m, -1b1, -1b7, -3b and -7b1.
struct SmallerBloom {
  const char* name;
  int gpus, tensor, pipeline, layers, hidden, heads, batch, increment;
  const char* lr;
  bool recomputes;
  int64_t parameters;
};

class SmallerBloomCommand : public MegatronScriptCommand, public testing::WithParamInterface<SmallerBloom> {};

TEST_P(SmallerBloomCommand, IsPlannedAsItStands) {
  const SmallerBloom& model = GetParam();
  const auto number = [](const char* name, int value) { return concat(name, "=", value); };
  Replacements changes = {
      {"GPUS_PER_NODE=8", "GPUS_PER_NODE=4"},
      {"TP_SIZE=4", number("TP_SIZE", model.tensor)},
      {"PP_SIZE=12", number("PP_SIZE", model.pipeline)},
      {"MICRO_BATCH_SIZE=2\n", "MICRO_BATCH_SIZE=1\n"},
      {"GLOBAL_BATCH_SIZE=2048", number("GLOBAL_BATCH_SIZE", model.batch)},
      {"NHIDDEN=14336", number("NHIDDEN", model.hidden)},
      {"NLAYERS=70", number("NLAYERS", model.layers)},
      {"NHEADS=112", number("NHEADS", model.heads)},
      {"SAVE_INTERVAL=100", "SAVE_INTERVAL=250"},
      {"--lr 6e-5", concat("--lr ", model.lr)},
      {"--min-lr 6e-6", "--min-lr 1e-5"},
      {"192 16 9_765_625", concat("192 ", model.increment, " 9_765_625")},
      {"    --sync-tp-duplicated-parameters \\\n    --bf16 \\\n", "    --fp16 \\\n"},
      {"    --kill-switch-path $KILL_SWITCH_PATH \\\n", ""},
      {"    --num-workers 2 \\\n    --valid-num-workers 0 \\\n", ""},
      {"  \"bf16\": {\n    \"enabled\": true\n  },",
       "  \"fp16\": {\"enabled\": true, \"loss_scale\": 0, \"loss_scale_window\": 500, \"hysteresis\": 2, "
       "\"min_loss_scale\": 1, \"initial_scale_power\": 12},"},
  };
  if (!model.recomputes) changes.push_back({"    --checkpoint-activations \\\n", ""});
  const Outcome outcome = bash(bloom(plan(model.gpus, "--json"), changes));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const auto planned = nlohmann::json::parse(outcome.output);
  EXPECT_EQ(planned.at("parameters").get<int64_t>(), model.parameters);
  const int replicas = model.gpus / model.tensor / model.pipeline;
  EXPECT_EQ(planned.at("micro_batches"), model.batch / replicas);
  EXPECT_EQ(planned.at("zero_stage"), 0) << "fp16: stage 0 is stage 0";
}

INSTANTIATE_TEST_SUITE_P(
    Tr11, SmallerBloomCommand,
    testing::Values(SmallerBloom{"1B3", 64, 2, 2, 24, 2048, 16, 512, 16, "2e-4", true, 1722408960},
                    SmallerBloom{"2B5", 128, 4, 4, 30, 2560, 32, 512, 32, "1.6e-4", true, 3002557440},
                    SmallerBloom{"760M", 32, 1, 2, 24, 1536, 16, 256, 16, "2.5e-4", false, 1065314304},
                    SmallerBloom{"350M", 32, 1, 1, 24, 1024, 16, 256, 32, "3.0e-4", false, 559214592},
                    SmallerBloom{"6B3", 128, 4, 4, 30, 4096, 32, 512, 32, "1.2e-4", true, 7069016064}),
    [](const auto& instance) { return std::string("Bloom") + instance.param.name; });

// The options of Megatron-LM's examples/pretrain_gpt3_175B.sh, for its 128 nodes of 8.
TEST_F(MegatronScriptCommand, Gpt3ExampleIsPlannedAsItStands) {
  const std::string options =
      " --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 --num-layers 96 --hidden-size 12288"
      " --num-attention-heads 96 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1"
      " --global-batch-size 1536 --rampup-batch-size 16 16 5859375 --train-samples 146484375"
      " --lr-decay-samples 126953125 --lr-warmup-samples 183105 --lr 6.0e-5 --min-lr 6.0e-6 --lr-decay-style cosine"
      " --log-interval 10 --eval-iters 40 --eval-interval 1000 --data-path 0.2 one 0.3 two 0.5 three"
      " --vocab-file gpt-vocab.json --merge-file gpt-merges.txt --save-interval 1000 --save checkpoints"
      " --load checkpoints --split 98,2,0 --clip-grad 1.0 --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95"
      " --init-method-std 0.006 --tensorboard-dir tensorboard --fp16 --activations-checkpoint-method uniform";
  const std::string files = concat("cp ", root(), "/tests/data/gpt2-tiny/vocab.json gpt-vocab.json; cp ", root(),
                                   "/tests/data/gpt2-tiny/merges.txt gpt-merges.txt\n");
  const Outcome outcome = bash(files + "espalier plan gpt --gpus 1024 --json" + options);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const auto planned = nlohmann::json::parse(outcome.output);
  const int64_t h = 12288, rows = 5120;  // of the small vocabulary, rounded up to a multiple of 128 * 8
  EXPECT_EQ(planned.at("parameters").get<int64_t>(), (rows + 2048) * h + 96 * (12 * h * h + 13 * h) + 2 * h);
  EXPECT_EQ(planned.at("micro_batches"), 1536 / 8);
}

TEST_F(MegatronScriptCommand, DocumentIsGeneratedFromTheTable) {
  const Outcome outcome = bash("espalier train gpt --help-markdown");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(outcome.output, read_file("docs/megatron-arguments.md"))
      << "regenerate it: espalier train gpt --help-markdown > docs/megatron-arguments.md";
}

}  // namespace megatron_script_command_test
}  // namespace espalier
