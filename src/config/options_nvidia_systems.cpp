// The options of NVIDIA's Megatron-LM about ranks, checkpoints, logs and other programs that `espalier train gpt` does
// not use (the rules: options_nvidia_model.cpp).
#include "config/internal/inert_rows.h"
#include "config/internal/rows.h"

namespace espalier::config::internal {
namespace {

constexpr const char* kOnlyInference = "only text generation reads it";
constexpr const char* kOnlyReinforcement = "only reinforcement learning reads it";
constexpr const char* kOnlyFsdp = "only FSDP reads it";
constexpr const char* kWhen = "it controls when ranks communicate, not what they send";
constexpr const char* kHow = "it controls how ranks communicate, not what they send";
constexpr const char* kOneFormat =
    "checkpoints have one format, which every layout reads; `espalier checkpoint` converts";
constexpr const char* kAsync = "checkpoints are always written in the background, by all ranks";
constexpr const char* kChecksums = "checkpoints always have checksums, which are compared on loading";
constexpr const char* kStragglers =
    "a rank that is slower than the rest is always named, in the log and in events.jsonl";
constexpr const char* kMetrics = "metrics.jsonl of the --save folder has the time and the rate of every step";
constexpr const char* kNeeds = "`espalier plan` says what a step needs";
constexpr const char* kOutside = "nothing is sent to other services";
constexpr const char* kRestart = "`espalier launch --max-restarts` restarts ranks";
constexpr const char* kFaults = "faults are not injected; leave it out";
constexpr const char* kOnlyDistillation = "only distillation reads it";
constexpr const char* kPartition = "use --pp-partition-method list:N,N,... or parameters";
constexpr const char* kOnlyLocal = "--non-persistent-save-interval keeps the state in memory of the launcher";
constexpr const char* kOnlySft = "only fine-tuning on prompts reads it";
constexpr const char* kConfigToml = "the options of a run are in config.toml of its --save folder";
constexpr const char* kOnlyHybrid = "only --hybrid-context-parallel reads it, which is refused";
constexpr const char* kHeads = "context ranks exchange heads for positions; every way computes the same";
constexpr const char* kGroups = "micro-batches pass through an interleaved pipeline in groups of one per stage";
constexpr const char* kWaits = "a rank that waits too long reports for whom";
constexpr const char* kOnlyFaults = "only --error-injection-rate reads it, which is refused";
constexpr const char* kRerun = "steps are not run twice; --check-replicas compares ranks";
constexpr const char* kOnlyWandb = "only W&B reads it";
constexpr const char* kLogLevel = "use --log-level";
constexpr const char* kTokenizerSaved =
    "a checkpoint has a copy of its tokenizer, and a resumed run is compared with it";

void add_checkpointing_rows(OptionTable& table) {
  table.group("checkpointing");
  refused(
      table, kOne, "checkpoints hold the parameters; nothing else is written; leave it out",
      {"--save-params-interval", "--save-activations-interval", "--save-wgrads-interval", "--save-dgrads-interval"});
  no_effect(table, kFlag, kOneFormat,
            {"--load-main-params-from-ckpt", "--use-mp-args-from-checkpoint-args", "--auto-detect-ckpt-format",
             "--ckpt-convert-update-legacy-dist-opt-format", "--dist-ckpt-save-pre-mcore-014",
             "--dist-ckpt-optim-fully-reshardable", "--distrib-optim-fully-reshardable-mem-efficient",
             "--use-dist-ckpt", "--ckpt-drop-redundant-extra-state"});
  table.add_without_effect("--non-persistent-ckpt-type", kOne, kOnlyLocal)
      .choices({"in_memory", "local"})
      .refuse_value("global", "use --save-interval and --save-keep-last");
  no_effect(
      table, kOne, kOnlyLocal,
      {"--non-persistent-global-ckpt-dir", "--non-persistent-local-ckpt-dir", "--non-persistent-local-ckpt-algo"});
  if (table.find("--pretrained-checkpoint") == nullptr)  // a family may have it
    refused(table, kOne, "use --load with --finetune", {"--pretrained-checkpoint"});
  no_effect_negatives(table, kTokenizerSaved, {"use-tokenizer-model-from-checkpoint-args", "save-tokenizer-assets"});
  no_effect(table, kOne, kOneFormat, {"--ckpt-format", "--dist-ckpt-strictness", "--dist-ckpt-format"});
  refused(table, kOne, "use `espalier checkpoint export-megatron`", {"--ckpt-convert-format", "--ckpt-convert-save"});
  no_effect(table, kFlag, kAsync,
            {"--no-ckpt-fully-parallel-save", "--async-save", "--use-persistent-ckpt-worker",
             "--async-ckpt-use-cpu-shm", "--ckpt-fully-parallel-load", "--ckpt-fully-parallel-load-per-rank-objects",
             "--ckpt-assume-constant-structure", "--ckpt-pg-tensors-cache-create", "--ckpt-fully-parallel-save"});
  no_effect(table, kOne, kAsync,
            {"--async-strategy", "--async-ckpt-cpu-priority", "--async-ckpt-io-priority",
             "--ckpt-fully-parallel-load-exchange-algo", "--ckpt-fully-parallel-save-process-group",
             "--ckpt-fully-parallel-load-process-group", "--ckpt-pg-tensors-cache-path", "--dist-ckpt-workers"});
  no_effect_negatives(table, kChecksums, {"ckpt-load-validate-sharding-integrity"});
  no_effect(table, kFlag, kChecksums, {"--verify-integrity"});
  refused(table, kOne, "a checkpoint keeps its step; use --finetune to start at step 0", {"--override-ckpt-iteration"});
}

void add_distributed_rows(OptionTable& table) {
  table.group("distributed");
  no_effect(table, kOne, kHow,
            {"--pipeline-model-parallel-comm-backend", "--tp-comm-bootstrap-backend", "--nccl-communicator-config-path",
             "--sharp-enabled-group"});
  no_effect(table, kList, kHeads, {"--hierarchical-context-parallel-sizes", "--cp-comm-type"});
  no_effect(table, kOne, kOnlyHybrid, {"--max-seqlen-per-dp-cp-rank"});
  refused(table, kFlag, "samples have one length; use --context-parallel-size", {"--hybrid-context-parallel"});
  no_effect(
      table, kFlag, kWhen,
      {"--tp-comm-overlap", "--tp-comm-overlap-rs-dgrad", "--delay-wgrad-compute", "--defer-embedding-wgrad-compute",
       "--overlap-p2p-communication-warmup-flush", "--no-overlap-p2p-communication", "--overlap-grad-reduce",
       "--overlap-param-gather", "--overlap-param-gather-with-optimizer-step", "--no-align-param-gather"});
  no_effect_negatives(table, kWhen,
                      {"tp-comm-bulk-wgrad", "tp-comm-bulk-dgrad", "tp-comm-overlap-ag", "tp-comm-overlap-rs",
                       "tp-comm-split-ag", "tp-comm-split-rs", "align-grad-reduce"});
  no_effect(table, kOne, kWhen, {"--wgrad-deferral-limit", "--tp-comm-overlap-cfg"});
  no_effect(table, kOne, kGroups, {"--microbatch-group-size-per-virtual-pipeline-stage"});
  refused(table, kFlag, kPartition,
          {"--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"});
  no_effect(table, kFlag, kOnlyFsdp,
            {"--init-model-with-meta-device", "--use-nccl-ub", "--disable-symmetric-registration",
             "--fsdp-manual-registration", "--create-all-gather-group", "--fsdp-double-buffer",
             "--enable-full-sharding-in-hsdp", "--torch-fsdp2-no-reshard-after-forward",
             "--megatron-fsdp-enable-fine-grained-param-gather", "--megatron-fsdp-max-pool-double-buffer",
             "--fsdp-db-use-persist-buf-on-alloc-fail"});
  no_effect_negatives(table, kOnlyFsdp, {"strict-fsdp-dtensor-load"});
  refused(table, kFlag, "use --zero-stage 3", {"--use-megatron-fsdp", "--use-torch-fsdp2"});
  no_effect(table, kFlag, kHow, {"--use-tp-pp-dp-mapping", "--disable-gloo-process-groups", "--use-sharp"});
  no_effect(table, kList, kHow, {"--high-priority-stream-groups"});
  refused(table, kOne, "use --distributed-timeout-minutes", {"--distributed-timeout-seconds-after-init"});
  no_effect(table, kOne, kWaits, {"--flight-recorder-dump-path", "--flight-recorder-trace-buffer-size"});
  no_effect_negatives(
      table, kWaits,
      {"flight-recorder-dump-on-timeout", "flight-recorder-include-only-active", "flight-recorder-extra-dump-on-exec"});
  no_effect(table, kFlag, kWaits, {"--flight-recorder-include-stack-trace"});
  no_effect(table, kFlag, kFused, {"--disable-jit-fuser"});
  refused(table, kOne, kPartition,
          {"--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers",
           "--pipeline-model-parallel-layout"});
  refused(table, kOne, "use --num-layers-per-virtual-pipeline-stage", {"--num-virtual-stages-per-pipeline-rank"});
  no_effect(table, kOne, kBuckets, {"--ddp-num-buckets", "--ddp-bucket-size"});
  no_effect(table, kFlag, kBuckets,
            {"--ddp-pad-buckets-for-high-nccl-busbw", "--ddp-reduce-scatter-with-fp32-accumulation",
             "--ddp-average-in-collective", "--no-use-layer-wise-param-layout", "--no-gradient-reduce-div-fusion"});
  no_effect(table, kFlag, kOnlyWeightShards,
            {"--gtp-remat-reduce-scatter-with-fp32-accumulation", "--gtp-remat-nccl-ub"});
  no_effect(table, kList, kBuckets, {"--ddp-param-name-patterns-for-fp32-local-accumulation"});
  no_effect(table, kOne, kOnlyFsdp,
            {"--megatron-fsdp-version", "--data-parallel-sharding-strategy", "--outer-dp-sharding-strategy",
             "--suggested-communication-unit-size", "--megatron-fsdp-main-params-dtype",
             "--megatron-fsdp-main-grads-dtype", "--megatron-fsdp-grad-comm-dtype"});
  refused(table, kFlag, "use `espalier plan` for a layout without its processes", {"--fake-process-group"});
}

void add_restarts_rows(OptionTable& table) {
  table.group("restarts");
  refused(table, kFlag, "use `espalier launch --max-restarts`", {"--inprocess-restart", "--enable-ft-package"});
  no_effect(
      table, kOne, kRestart,
      {"--inprocess-max-iterations", "--inprocess-monitor-thread-interval", "--inprocess-monitor-process-interval",
       "--inprocess-progress-watchdog-interval", "--inprocess-heartbeat-interval", "--inprocess-soft-timeout",
       "--inprocess-hard-timeout", "--inprocess-heartbeat-timeout", "--inprocess-barrier-timeout",
       "--inprocess-completion-timeout", "--inprocess-last-call-wait", "--inprocess-termination-grace-time",
       "--inprocess-granularity", "--inprocess-active-world-size", "--ft-num-warmup-iters"});
  no_effect(table, kFlag, kRestart, {"--inprocess-empty-cuda-cache", "--calc-ft-timeouts"});
  no_effect(table, kOne, kOnlyFaults, {"--error-injection-type"});
  no_effect(table, kOne, kRerun, {"--rerun-mode"});
  refused(
      table, kOne, kFaults,
      {"--fault-injector-ranks", "--fault-injector-num-ranks", "--fault-injector-fault-types",
       "--fault-injector-fault-probabilities", "--fault-injector-fault-delay", "--fault-injector-delay-start-iteration",
       "--fault-injector-mtti-seconds", "--fault-injector-offset-seconds", "--fault-injector-seed"});
}

void add_logging_rows(OptionTable& table) {
  table.group("logging");
  no_effect(table, kOne, kConfigToml, {"--config-logger-dir"});
  no_effect(table, kOne, kNeeds, {"--log-memory-interval"});
  no_effect(table, kFlag, kNeeds, {"--log-device-memory-used"});
  no_effect(table, kFlag, kMetrics,
            {"--run-workload-inspector-server", "--log-throughput", "--log-progress", "--log-energy"});
  no_effect(table, kFlag, kStragglers, {"--log-straggler", "--disable-straggler-on-startup"});
  no_effect(table, kOne, kStragglers, {"--straggler-ctrlr-port", "--straggler-minmax-count"});
  no_effect(table, kFlag, kOutside, {"--no-one-logger", "--one-logger-async", "--otel-enabled"});
  no_effect(table, kOne, kOutside,
            {"--one-logger-project", "--one-logger-run-name", "--app-tag-run-name", "--app-tag-run-version",
             "--otel-service-name", "--otel-span-groups"});
  refused(table, kFlag, "attention scores are never stored; leave it out", {"--log-max-attention-logit"});
  no_effect(table, kOne, kOnlyWandb, {"--wandb-entity"});
  no_effect(table, kOne, kLogLevel, {"--logging-level"});
}

void add_inference_rows(OptionTable& table) {
  table.group("inference");
  no_effect(
      table, kFlag, kOnlyInference,
      {"--use-legacy-static-engine", "--inference-dynamic-batching",
       "--inference-dynamic-batching-track-paused-request-events",
       "--inference-dynamic-batching-track-generated-token-events", "--decode-only-cuda-graphs",
       "--inference-cuda-graph-all-prefills", "--enable-chunked-prefill", "--use-same-sampling-seed-across-dp-ranks",
       "--flash-decode", "--nccl-all-reduce-for-prefill", "--inference-fuse-tp-communication",
       "--inference-disable-triton-nvls-kernels", "--inference-moe-disable-fused-quant-kernels"});
  no_effect(table, kOne, kOnlyInference,
            {"--inference-max-requests",
             "--inference-max-seq-length",
             "--inference-dynamic-batching-buffer-size-gb",
             "--inference-dynamic-batching-paused-buffer-size-gb",
             "--inference-dynamic-batching-mamba-memory-ratio",
             "--inference-dynamic-batching-block-size",
             "--inference-dynamic-batching-max-requests",
             "--inference-dynamic-batching-max-tokens",
             "--inference-dynamic-batching-num-cuda-graphs",
             "--inference-cuda-graph-max-tokens",
             "--inference-dynamic-batching-unified-memory-level",
             "--num-speculative-tokens",
             "--inference-dynamic-batching-prefix-caching-eviction-policy",
             "--inference-dynamic-batching-prefix-caching-coordinator-policy",
             "--inference-dynamic-batching-prefix-caching-routing-alpha",
             "--inference-dynamic-batching-prefix-caching-mamba-gb",
             "--inference-dynamic-batching-cuda-graph-mixed-prefill-count",
             "--inference-dynamic-batching-cuda-graph-sizing-distribution",
             "--inference-dynamic-batching-sampling-backend",
             "--inference-dynamic-batching-async-sched-mode",
             "--inference-dynamic-batching-logprobs-mode",
             "--inference-logging-step-interval",
             "--inference-coordinator-port",
             "--inference-shards",
             "--inference-cuda-graph-scope",
             "--symmetric-ar-type",
             "--inference-grouped-gemm-backend",
             "--inference-moe-token-dispatcher-type",
             "--mlp-chunks-for-prefill"});
  no_effect_either(
      table, kOnlyInference,
      {"inference-dynamic-batching-prefix-caching", "inference-text-gen-server-logging", "inference-wandb-logging",
       "inference-use-synchronous-zmq-collectives", "inference-disable-ep-consensus"});
  no_effect(table, kOne, kOnlyMamba, {"--mamba-inference-conv-states-dtype", "--mamba-inference-ssm-states-dtype"});
}

void add_reinforcement_learning_rows(OptionTable& table) {
  table.group("reinforcement learning");
  refused(table, kFlag, "reinforcement learning is not built in; leave it out", {"--perform-rl-step"});
  no_effect(table, kOne, kOnlyReinforcement,
            {"--rl-prompts-per-eval",
             "--grpo-prompts-per-step",
             "--grpo-group-size",
             "--rl-generation-lag",
             "--rl-max-inflight-requests",
             "--rl-submission-granularity",
             "--rl-consumption-granularity",
             "--rl-rollout-bank-dir",
             "--rl-rollout-bank-max-bytes",
             "--grpo-iterations",
             "--grpo-clamp-eps-lower",
             "--grpo-clamp-eps-upper",
             "--grpo-kl-beta",
             "--grpo-entropy-term-weight",
             "--langrl-env-config",
             "--rl-default-temperature",
             "--rl-default-top-p",
             "--rl-default-top-k",
             "--rl-kv-cache-management-mode",
             "--rl-importance-sampling-truncation-coef",
             "--rl-sequence-packing-max-sequences-per-bin",
             "--rl-sequence-packing-algo",
             "--rl-inference-tensor-model-parallel-size",
             "--rl-inference-pipeline-model-parallel-size",
             "--rl-inference-expert-model-parallel-size",
             "--rl-inference-expert-tensor-model-parallel-size",
             "--rl-inference-model-unified-memory-level",
             "--refit-method",
             "--rl-profile-dir"});
  no_effect(table, kFlag, kOnlyReinforcement,
            {"--rl-durable-rollout-bank", "--grpo-filter-groups-with-same-reward",
             "--rl-offload-optimizer-during-inference", "--rl-profile"});
  no_effect_either(
      table, kOnlyReinforcement,
      {"rl-persist-cuda-graphs", "rl-partial-rollouts", "rl-inference-logprobs-is-correction",
       "rl-use-sequence-packing", "rl-training-cuda-graphs", "rl-offload-inference-model-weights-when-idle",
       "rl-verify-model-weights-swap", "rl-skip-bos-token"});
  no_effect(table, kList, kOnlyReinforcement, {"--rl-inference-parsers"});
}

void add_logits_distillation_rows(OptionTable& table) {
  table.group("logits distillation");
  no_effect(table, kOne, kOnlyDistillation,
            {"--logits-save-top-k", "--logits-save-top-p", "--logits-save-top-p-min-k", "--logits-save-dtype",
             "--logits-load-decode-threads", "--logits-load-prefetch-factor", "--logits-load-msc-prefetch-depth",
             "--logits-load-kd-loss-alpha"});
  refused(table, kOne, "distillation is not built in; leave it out", {"--logits-save-dir", "--logits-load-dir"});
  no_effect(table, kFlag, kOnlyDistillation, {"--logits-load-ignore-errors"});
}

void add_fine_tuning_on_prompts_rows(OptionTable& table) {
  table.group("fine-tuning on prompts");
  refused(table, kFlag, "fine-tuning on prompts is not built in; leave it out", {"--sft"});
  no_effect(table, kOne, kOnlySft, {"--sft-tokenizer-prompt-format"});
}

// One value of each changes nothing.
void add_systems_values(OptionTable& table) {
  table.group("distributed");
  table
      .add_without_effect("--num-distributed-optimizer-instances", kOne, "all data-parallel ranks divide one optimizer")
      .choices({"1"})
      .refuse_value("*", "all data-parallel ranks divide one optimizer; leave it out");
  table.group("restarts");
  table.add_without_effect("--error-injection-rate", kOne, "faults are not injected")
      .choices({"0"})
      .refuse_value("*", kFaults);
}

// Of releases 0.8 to 0.18, and gone since.
void add_older(OptionTable& table) {
  table.group("older releases");
  no_effect(table, kFlag, "there is one implementation of the model", {"--use-legacy-models"});
  no_effect(table, kFlag, kWhen, {"--no-delay-grad-reduce", "--delay-param-gather", "--align-param-gather"});
  no_effect(table, kFlag, kOutside, {"--enable-one-logger"});
  no_effect(table, kOne, kOutside, {"--one-logger-entity"});
  no_effect(table, kFlag, "only FSDP reads it", {"--keep-fp8-transpose-cache-when-using-custom-fsdp"});
  no_effect(table, kFlag, "weights of a blend are always divided by their sum", {"--renormalize-blend-weights"});
  no_effect(table, kFlag, "data are already token ids when a run starts",
            {"--legacy-tokenizer", "--tokenizer-hf-include-special-tokens", "--tokenizer-hf-use-fast"});
  no_effect(table, kOne, "only Mamba layers read it", {"--hybrid-attention-ratio", "--hybrid-mlp-ratio"});
  no_effect(table, kOne, "only encoder-decoder models read it",
            {"--encoder-tensor-model-parallel-size", "--encoder-pipeline-model-parallel-size"});
  no_effect(table, kOne, "only Retro reads it", {"--retro-project-dir"});
  no_effect(table, kFlag, "only mixtures of experts read it", {"--moe-extended-tp", "--moe-use-legacy-grouped-gemm"});
  no_effect(table, kFlag, kOnlyInference, {"--disable-chunked-prefill"});
  no_effect(table, kOne, kOnlyInference,
            {"--inference-dynamic-batching-buffer-guaranteed-fraction",
             "--inference-dynamic-batching-buffer-overflow-factor", "--inference-dynamic-batching-chunk-size",
             "--inference-dynamic-batching-cuda-graph-max-tokens", "--inference-dynamic-batching-max-requests-override",
             "--inference-dynamic-batching-max-tokens-override", "--inference-max-batch-size"});
  refused(table, kFlag, "use --zero-stage 3", {"--use-custom-fsdp"});
  refused(table, kFlag, "offload is not built in; use --zero-stage 1, or leave it out", {"--offload-optimizer-states"});
  refused(table, kOne, "copy the data to a file system first", {"--s3-cache-path"});
}

}  // namespace

void add_nvidia_systems(OptionTable& table) {
  add_checkpointing_rows(table);
  add_distributed_rows(table);
  add_restarts_rows(table);
  add_logging_rows(table);
  add_inference_rows(table);
  add_reinforcement_learning_rows(table);
  add_logits_distillation_rows(table);
  add_fine_tuning_on_prompts_rows(table);

  add_systems_values(table);
  add_older(table);
}

}  // namespace espalier::config::internal
