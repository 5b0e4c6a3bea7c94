# The run that ALCF/helpers.sh of Argonne's Megatron-DeepSpeed builds for train_aGPT_7B.sh on a machine of NVIDIA's: its
# settings, its JSON and its arguments. On Intel's, --distributed-backend is ccl and --use-flash-attn-builder stands for
# -v2.
set -e
TP=1
PP=1
SP=1
ZERO_STAGE=1
WORLD_SIZE=24
MICRO_BATCH=4
GRAD_ACC_STEPS=8
HEADS=32
NLAYERS=32
HIDDEN=4096
NUM_KV_HEAD=8
FFN_HIDDEN_SIZE=11008
SEQ=4096
TRAIN_TOKENS=4673780159710
INIT_METHOD_STD=.009882
SAVE_INTERVAL=50
EVAL_INTERVAL=100
DTYPE=bf16
BE=nccl
DATA_FILE_LIST=ALCF/data-lists/dolma.txt
TOKENIZER_TYPE=HFTokenizer
TOKENIZER_MODEL=google/gemma-7B
CKPT_DIR=checkpoints/agpt
TBDIR="${CKPT_DIR}/tensorboard"
data_cache_path="${CKPT_DIR}/.cache/dolma/index-cache"
mkdir -p "${data_cache_path}" "${TBDIR}" ds-configs
GLOBAL_BATCH=$((WORLD_SIZE * MICRO_BATCH * GRAD_ACC_STEPS / TP / PP / SP))
TRAIN_ITERS=$((TRAIN_TOKENS / SEQ / GLOBAL_BATCH))
DS_CONFIG="ds-configs/ds_stage${ZERO_STAGE}_mb${MICRO_BATCH}_gb${GLOBAL_BATCH}_pp${PP}_${DTYPE}.json"
cat <<EOT >"${DS_CONFIG}"
{
        "train_batch_size": $GLOBAL_BATCH,
        "train_micro_batch_size_per_gpu": $MICRO_BATCH,
        "gradient_clipping": 1.0,
        "steps_per_print": 1,
        "gradient_accumulation_steps": $GRAD_ACC_STEPS,
        "zero_force_ds_cpu_optimizer": false,
        "zero_allow_untested_optimizer": true,
        "wall_clock_breakdown": false,
        "zero_optimization": {
          "stage": $ZERO_STAGE
        },
        "fp16": {
          "enabled": false,
          "loss_scale": 0,
          "loss_scale_window": 1000,
          "hysteresis": 2,
          "min_loss_scale": 1
        },
        "bfloat16": {
          "enabled": true
        },
        "comms_logger": {
          "enabled": false,
          "verbose": false,
          "debug": false
        },
        "flops_profiler": {
          "enabled": true,
          "profile_step": 2,
          "module_depth": -1,
          "top_modules": 1,
          "detailed": true,
          "output_file": null
        }
}
EOT

train_args=(
    "--use-checkpoint-opt_param-scheduler"
    "--lr 0.0002"
    "--lr-decay-style cosine"
    "--lr-warmup-fraction 0.05"
    "--swiglu"
    "--hidden-dropout 0"
    "--attention-dropout 0"
    "--normalization rmsnorm"
    "--disable-bias-linear"
    "--no-query-key-layer-scaling"
    "--use-rotary-position-embeddings"
    "--untie-embeddings-and-output-weights"
    "--num-key-value-heads ${NUM_KV_HEAD}"
    "--ffn-hidden-size ${FFN_HIDDEN_SIZE}"
    "--use-flash-attn-v2"
    "--tokenizer-type ${TOKENIZER_TYPE}"
    "--tokenizer-model ${TOKENIZER_MODEL}"
    "--log-timers-to-tensorboard"
    "--log-optimizer-states-to-tensorboard"
    "--tensorboard-dir ${TBDIR}"
    "--deepspeed"
    "--no-pipeline-parallel"
    "--deepspeed_config=${DS_CONFIG}"
    "--zero-stage=$ZERO_STAGE"
    "--${DTYPE}"
    "--accumulate-allreduce-grads-in-fp32"
    "--adjust-word-embedding-init"
    "--adam-beta1=0.9"
    "--adam-beta2=0.95"
    "--adam-eps=0.00001"
    "--clip-grad=1.0"
    "--data-cache-path=${data_cache_path}"
    "--data-file-list=${DATA_FILE_LIST}"
    "--distributed-backend=${BE}"
    "--ds-sequence-parallel-size=${SP}"
    "--eval-interval=${EVAL_INTERVAL}"
    "--eval-iters=20"
    "--global-batch-size=${GLOBAL_BATCH}"
    "--hidden-size=${HIDDEN}"
    "--init-method-std=${INIT_METHOD_STD}"
    "--log-interval=1"
    "--load=${CKPT_DIR}"
    "--max-position-embeddings=$((16 * SEQ))"
    "--micro-batch-size=${MICRO_BATCH}"
    "--no-bias-gelu-fusion"
    "--no-bias-dropout-fusion"
    "--no-masked-softmax-fusion"
    "--no-gradient-accumulation-fusion"
    "--num-layers=${NLAYERS}"
    "--num-attention-heads=${HEADS}"
    "--optimizer=adamw"
    "--pipeline-model-parallel-size=${PP}"
    "--rotary-position-embeddings-theta=50000"
    "--save=${CKPT_DIR}"
    "--seq-length=${SEQ}"
    "--split=990,10,0"
    "--shuffle-sample-in-corpus"
    "--save-interval=${SAVE_INTERVAL}"
    "--train-iters=${TRAIN_ITERS}"
    "--tensor-model-parallel-size=${TP}"
    "--timing-log-level=1"
    "--weight-decay=0.1"
    "--word-embedding-init-std=0.632455532"
)
run_cmd=("mpiexec -n ${WORLD_SIZE} python3 pretrain_gpt_alcf.py" "${train_args[@]}")
eval "${run_cmd[*]}"
