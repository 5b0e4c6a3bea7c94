// What a launch script of Megatron-DeepSpeed holds works as it stands.
#include <gtest/gtest.h>

#include "tests/support/command.h"

namespace espalier {
namespace {

class MegatronScriptCommand : public Command {
 protected:
  // bigscience's tr11-176B-ml.slurm: its variables, its JSON and its groups of arguments, unscaled; ahead of them what
  // its paths name. `launch` runs $CMD, as the script's `bash -c` does.
  std::string script(const std::string& launch) const {
    return "TOKENIZER_NAME_OR_PATH=bigscience-catalogue-data-dev/byte-level-bpe-tokenizer-no-norm-250k-whitespace-and-"
           "eos-regex-alpha-v3-dedup-lines-articles\nDATA=" +
           root() + "/tests/data/owt-20_text_document\nTOKENIZER=" + root() +
           "/tests/data/tokenizers/bloom/tokenizer.json\nLAUNCH='" + launch + "'\n" + R"script(
mkdir -p $TOKENIZER_NAME_OR_PATH data checkpoints/main logs
cp $TOKENIZER $TOKENIZER_NAME_OR_PATH/
echo "\"train: 1 0:0.95 $DATA\"" > data/train-splits.txt
echo "\"valid: 1 0.95:1 $DATA\" \"valid_en: 1 0.95:1 $DATA\"" > data/valid-splits.txt
SLURM_JOB_ID=1; CHECKPOINT_PATH=checkpoints/main; TENSORBOARD_PATH=logs/tensorboard
KILL_SWITCH_PATH=kill-switch-tr11-176B-exp1
MASTER_PORT=6000; TP_SIZE=4; PP_SIZE=12; MICRO_BATCH_SIZE=2; GLOBAL_BATCH_SIZE=2048
NHIDDEN=14336; NLAYERS=70; NHEADS=112; SEQ_LEN=2048; SAVE_INTERVAL=100; ZERO_STAGE=0
TRAIN_SAMPLES=220_000_000; LR_DECAY_SAMPLES=200_000_000; LR_WARMUP_SAMPLES=183_105

OPTIMIZER_ARGS="--optimizer adam --adam-beta1 0.9 --adam-beta2 0.95 --adam-eps 1e-8 --lr 6e-5 --min-lr 6e-6 \
    --lr-decay-style cosine --lr-decay-samples $LR_DECAY_SAMPLES --lr-warmup-samples $LR_WARMUP_SAMPLES \
    --clip-grad 1.0 --weight-decay 1e-1"
EXIT_OPTS="--exit-duration-in-mins 5990"
GPT_ARGS="--pp-partition-method 'type:transformer|embedding' --num-layers $NLAYERS --hidden-size $NHIDDEN \
    --num-attention-heads $NHEADS --seq-length $SEQ_LEN --max-position-embeddings $SEQ_LEN \
    --micro-batch-size $MICRO_BATCH_SIZE --rampup-batch-size 192 16 9_765_625 \
    --global-batch-size $GLOBAL_BATCH_SIZE --train-samples $TRAIN_SAMPLES --tokenizer-type PretrainedFromHF \
    --tokenizer-name-or-path $TOKENIZER_NAME_OR_PATH --init-method-std 0.0048 \
    --embed-layernorm --sync-tp-duplicated-parameters --bf16 --seed 42 \
    --position-embedding-type alibi --checkpoint-activations --abort-on-unmet-fused-kernel-constraints \
    --kill-switch-path $KILL_SWITCH_PATH --pad-vocab-size-to 250880 $OPTIMIZER_ARGS $EXIT_OPTS"
OUTPUT_ARGS="--log-interval 1 --save-interval $SAVE_INTERVAL --eval-interval 1000 --eval-iters 1 \
    --tensorboard-dir $TENSORBOARD_PATH --tensorboard-queue-size 5 --log-timers-to-tensorboard \
    --log-batch-size-to-tensorboard --log-validation-ppl-to-tensorboard"
config_json="./ds_config.$SLURM_JOB_ID.json"
cat <<EOT > $config_json
{
  "train_micro_batch_size_per_gpu": $MICRO_BATCH_SIZE,
  "train_batch_size": $GLOBAL_BATCH_SIZE,
  "gradient_clipping": 1.0,
  "zero_optimization": {
    "stage": $ZERO_STAGE
  },
  "bf16": {
    "enabled": true
  },
  "steps_per_print": 2000,
  "wall_clock_breakdown": false
}
EOT
DEEPSPEED_ARGS="--deepspeed --deepspeed_config ${config_json} --zero-stage ${ZERO_STAGE} \
    --deepspeed-activation-checkpointing"
CMD="--tensor-model-parallel-size $TP_SIZE --pipeline-model-parallel-size $PP_SIZE $GPT_ARGS $OUTPUT_ARGS \
    --save $CHECKPOINT_PATH --load $CHECKPOINT_PATH --train-weighted-split-paths-path data/train-splits.txt \
    --valid-weighted-split-paths-path data/valid-splits.txt --num-workers 2 --valid-num-workers 0 \
    --data-impl mmap --distributed-backend nccl $DEEPSPEED_ARGS"
bash -c "$LAUNCH $CMD"
)script";
  }
};

void expect_parts(const std::string& text, const std::vector<const char*>& parts) {
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST_F(MegatronScriptCommand, Bloom176BIsPlannedAsItStands) {
  const Outcome outcome = bash(script("espalier plan gpt --gpus 384"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  expect_parts(outcome.output, {"176,247,271,424 parameters", "bubble 7.9 %",
                                "--zero-stage 0 under --deepspeed with --bf16 is read as 1"});
  expect_parts(outcome.errors, {"steps_per_print (use --log-interval)", "wall_clock_breakdown ("});
}

// The first of the 384 processes, by the environment that torchrun gives it.
TEST_F(MegatronScriptCommand, Bloom176BValidatesAsItStands) {
  const Outcome outcome =
      bash(script("RANK=0 WORLD_SIZE=384 LOCAL_RANK=0 LOCAL_WORLD_SIZE=8 MASTER_ADDR=127.0.0.1 MASTER_PORT=6000 "
                  "espalier train gpt --validate-only"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  expect_parts(outcome.errors, {"valid: 176,247,271,424 parameters, bf16; 115,311 steps, 220,000,000 samples",
                                "read as 1: so DeepSpeed's bf16 optimizer"});
}

TEST_F(MegatronScriptCommand, JsonAndFlagsThatDisagreeStopTheRun) {
  const Outcome outcome =
      bash(script("RANK=0 WORLD_SIZE=384 LOCAL_RANK=0 LOCAL_WORLD_SIZE=8 MASTER_ADDR=127.0.0.1 MASTER_PORT=6000 "
                  "espalier train gpt --validate-only") +
           "bash -c \"espalier plan gpt --gpus 384 $CMD --clip-grad 0.5\"\n");
  EXPECT_EQ(outcome.exit_code, 2);
  expect_parts(outcome.errors,
               {"--clip-grad 0.5 (command line) and gradient_clipping 1.0 (./ds_config.1.json) disagree"});
}

TEST_F(MegatronScriptCommand, DocumentIsGeneratedFromTheTable) {
  const Outcome outcome = bash("espalier train gpt --help-markdown");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(outcome.output, read_file("docs/megatron-arguments.md"))
      << "write it anew: espalier train gpt --help-markdown > docs/megatron-arguments.md";
}

}  // namespace
}  // namespace espalier
