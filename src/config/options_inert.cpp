// What Megatron's scripts may hold and what `espalier train gpt` does not use: accepted with the reason, or refused
// with what to use instead. Accepted is only what cannot change the numbers a run computes, or what upstream itself
// never reads in GPT.
#include "config/internal/inert_rows.h"
#include "config/internal/rows.h"

namespace espalier::config::internal {
namespace {

constexpr const char* kFusion = "kernels are always fused, and equal the unfused form";
// What another family learns from: upstream's parser takes it for every model, and it then changes nothing.
constexpr const char* kOnlyBert = "only BERT reads it (espalier train bert); leave it out";
constexpr const char* kOnlyT5Reads = "only T5 reads it (espalier train t5); leave it out";
constexpr const char* kOnlySentences = "only BERT and T5 read it (espalier train bert, train t5); leave it out";
constexpr const char* kOnlyRetrieval = "only retrievers read it (espalier train ict, index embed)";
constexpr const char* kOnlyVision = "only vision models read it";
constexpr const char* kMapped = "token files are memory-mapped and need no workers";
constexpr const char* kZeroBuffers = "it sizes DeepSpeed's buffers";
constexpr const char* kRecompute = "recompute follows --checkpoint-activations or --recompute-granularity";

}  // namespace

void add_network_size_inert(OptionTable& table) {
  no_effect(table,
            {
                {"--sync-tp-duplicated-parameters", kFlag, "parameters that tensor ranks share never drift apart here"},
                {"--log-level-replica", kOne, "only the first process writes logs"},
            });
  refused(table, {
                     {"--bert-no-binary-head", kFlag, kOnlyBert},
                     {"--bert-num-tokentypes", kOne, kOnlyBert},
                     {"--onnx-safe", kOne, "nothing is exported to ONNX; for its erf gelu use --no-bias-gelu-fusion"},
                     {"--apply-layernorm-1p", kFlag,
                      "layer-norm weights are stored as the multipliers they are; leave it out"},
                     {"--embedding-weights-in-fp32", kFlag, "every weight has an fp32 master copy; leave it out"},
                     {"--bitfit", kFlag, "it exists only on a branch; leave it out"},
                 });
}

void add_regularization_inert(OptionTable& table) {
  no_effect(table, {
                       {"--cpu-optimizer", kFlag, "the optimizer runs where the parameters are"},
                       {"--cpu_torch_adam", kFlag, "the optimizer runs where the parameters are"},
                   });
  refused(table, {
                     {"--use-bnb-optimizer", kFlag,
                      "8-bit Adam is not built in; its embedding layer norm alone is --embed-layernorm"},
                 });
}

void add_training_inert(OptionTable& table) {
  no_effect(table, {
                       {"--no-masked-softmax-fusion", kFlag, kFusion},
                       {"--no-bias-dropout-fusion", kFlag, kFusion},
                       {"--no-gradient-accumulation-fusion", kFlag, kFusion},
                       {"--no-persist-layer-norm", kFlag, kFusion},
                       {"--abort-on-unmet-fused-kernel-constraints", kFlag, "the kernels support every shape"},
                       {"--use-flash-attn", kFlag, "attention never stores its score matrix"},
                       {"--use-flash-attn-v1", kFlag, "attention never stores its score matrix"},
                       {"--use-flash-attn-v2", kFlag, "attention never stores its score matrix"},
                       {"--use-flash-attn-builder", kFlag, "attention never stores its score matrix"},
                       {"--codecarbon-dir", kOne, "energy is not measured"},
                       {"--exit-signal-handler", kFlag, "SIGTERM and SIGUSR1 always save and exit"},
                   });
  refused(table,
          {
              {"--batch-size", kOne,
               "use --micro-batch-size (samples at once) and --global-batch-size (samples of a step)"},
              {"--num-microbatches-in-minibatch", kOne, "it follows from --micro-batch-size and --global-batch-size"},
              {"--inference", kFlag, "use `espalier generate`, or --eval-only true for losses"},
              {"--no-train", kFlag, "use --eval-only true"},
              {"--profile-steps", kOne, "use --profile-step-start and --profile-step-end"},
          });
}

void add_recompute_inert(OptionTable& table) {
  no_effect(table,
            {
                {"--recompute-activations", kFlag, "attention probabilities, all that it recomputes, are never kept"},
                {"--deepspeed-activation-checkpointing", kFlag, kRecompute},
                {"--contigious-checkpointing", kFlag, kRecompute},
                {"--checkpoint-in-cpu", kFlag, kRecompute},
                {"--synchronize-each-layer", kFlag, kRecompute},
                {"--profile-backward", kFlag, kRecompute},
            });
}

void add_initialization_inert(OptionTable& table) {
  no_effect(table,
            {
                {"--use-cpu-initialization", kFlag, "weights are always drawn on the CPU, equal in every layout"},
            });
}

void add_learning_rate_inert(OptionTable& table) {
  no_effect(table, {
                       {"--universal-checkpoint", kFlag, "every checkpoint loads in every layout"},
                   });
  refused(table, {
                     {"--warmup", kOne, "use --lr-warmup-fraction, --lr-warmup-iters or --lr-warmup-samples"},
                     {"--lr-finder", kFlag, "leave it out"},
                     {"--use-checkpoint-opt_params_scheduler", kFlag, "use --use-checkpoint-lr-scheduler"},
                     {"--reset-iteration", kFlag, "use --finetune"},
                 });
}

void add_checkpointing_inert(OptionTable& table) {
  no_effect(table, {
                       {"--no-save-rng", kFlag, "randomness is counter-based and has no state to save"},
                       {"--exit-on-missing-checkpoint", kFlag,
                        "a missing checkpoint is always an error, except when --load equals --save"},
                   });
  refused(table, {
                     {"--no-save-optim", kFlag,
                      "checkpoints hold the optimizer; a copy of all files except optimizer-* has only the weights"},
                     {"--load-tag", kOne, "use --ckpt-step"},
                     {"--no-load-lr-state", kFlag, "use --override-lr-scheduler"},
                     {"--use-checkpoint-args", kFlag, "pass the run's config.toml as --recipe"},
                 });
}

void add_mixed_precision_inert(OptionTable& table) {
  no_effect(table, {
                       {"--no-query-key-layer-scaling", kFlag,
                        "the scaling cancels out where scores are fp32, as they are here"},
                       {"--attention-softmax-in-fp32", kFlag, "scores never leave fp32 here"},
                       {"--accumulate-allreduce-grads-in-fp32", kFlag, "gradients are always summed in fp32"},
                       {"--fp16-lm-cross-entropy", kFlag, "the loss is always computed in fp32"},
                   });
  // A GPT has it.
  if (table.find("--fp32-residual-connection") == nullptr)
    refused(table, {{"--fp32-residual-connection", kFlag,
                     "the residual stream of this family has the compute type; leave out --bf16 and --fp16 for fp32"}});
}

void add_distributed_inert(OptionTable& table) {
  table.add_without_effect("--DDP-impl", kOne, kBuckets)
      .choices({"local", "torch"})
      .refuse_value("FSDP", "use --zero-stage 3");
  no_effect(table, {
                       {"--use-contiguous-buffers-in-ddp", kFlag, kBuckets},
                       {"--no-contiguous-buffers-in-local-ddp", kFlag, kBuckets},
                       {"--no-scatter-gather-tensors-in-pipeline", kFlag, "stages exchange whole tensors"},
                       {"--no-async-tensor-model-parallel-allreduce", kFlag,
                        "it controls when tensor ranks communicate, not what they send"},
                       {"--local_rank", kOne, "the rank comes from the environment"},
                       {"--lazy-mpu-init", kList, "there is no external process manager"},
                   });
  refused(table,
          {
              {"--model-parallel-size", kOne, "use --tensor-model-parallel-size"},
              {"--pipeline-model-parallel-split-rank", kOne, "only encoder-decoder models have one; leave it out"},
          });
}

void add_data_inert(OptionTable& table) {
  no_effect(table, {
                       {"--log-path", kOne, "the options of a run are in config.toml of its --save folder"},
                       {"--trust-remote-code", kFlag, "no code comes with a tokenizer here"},
                       {"--retriever-seq-length", kOne, kOnlyRetrieval},
                       {"--sample-rate", kOne, kOnlyRetrieval},
                       {"--noise-density", kOne, kOnlyT5},
                       {"--mean-noise-span-length", kOne, kOnlyT5},
                       {"--mmap-warmup", kFlag, kMapped},
                       {"--num-workers", kOne, kMapped},
                       {"--valid-num-workers", kOne, kMapped},
                       {"--multiprocessing-context", kOne, kMapped},
                   });
  refused(table, {{"--objective", kOne, "only a GPT has one (train gpt); leave it out"},
                  {"--decoder-seq-length", kOne, kOnlyT5Reads},
                  {"--mask-prob", kOne, kOnlySentences},
                  {"--short-seq-prob", kOne, kOnlySentences}});
  refused(table, kFlag, "it belongs to prefix language models (train gpt --objective prefix); leave it out",
          {"--loss-on-targets-only", "--reweight-loss-based-on-position-frequency"});
  refused(table, kFlag, "it belongs to packed pairs (train gpt --objective multitask); leave it out",
          {"--norm-target-loss", "--prefixlm"});
}

void add_families_inert(OptionTable& table) {
  table.group("autoresume");
  refused(table, {{"--adlr-autoresume", kFlag, "use --exit-duration-in-mins, --kill-switch-path or SIGUSR1"}});
  no_effect(table, {{"--adlr-autoresume-interval", kOne, "there is no autoresume"}});
  table.group("biencoder");
  no_effect(table, {
                       {"--ict-head-size", kOne, kOnlyRetrieval},
                       {"--biencoder-projection-dim", kOne, kOnlyRetrieval},
                       {"--biencoder-shared-query-context-model", kFlag, kOnlyRetrieval},
                       {"--ict-load", kOne, kOnlyRetrieval},
                       {"--bert-load", kOne, kOnlyRetrieval},
                       {"--titles-data-path", kOne, kOnlyRetrieval},
                       {"--query-in-block-prob", kOne, kOnlyRetrieval},
                       {"--use-one-sent-docs", kFlag, kOnlyRetrieval},
                       {"--evidence-data-path", kOne, kOnlyRetrieval},
                       {"--retriever-report-topk-accuracies", kList, kOnlyRetrieval},
                       {"--retriever-score-scaling", kFlag, kOnlyRetrieval},
                       {"--block-data-path", kOne, kOnlyRetrieval},
                       {"--embedding-path", kOne, kOnlyRetrieval},
                       {"--indexer-batch-size", kOne, kOnlyRetrieval},
                       {"--indexer-log-interval", kOne, kOnlyRetrieval},
                   });
  table.group("vit");
  no_effect(table, {
                       {"--num-classes", kOne, kOnlyVision},
                       {"--img-dim", kOne, kOnlyVision},
                       {"--num-channels", kOne, kOnlyVision},
                       {"--patch-dim", kOne, kOnlyVision},
                   });
}

void add_logging_inert(OptionTable& table) {
  no_effect(table, {
                       {"--tensorboard-queue-size", kOne, "events are written at once"},
                       {"--timing-log-level", kOne, "use --profile-step-start for the times of a step"},
                   });
  refused(table,
          {
              {"--wandb-project", kOne, "send metrics.jsonl of the --save folder to W&B from outside; leave it out"},
              {"--wandb-exp-name", kOne, "send metrics.jsonl of the --save folder to W&B from outside; leave it out"},
              {"--wandb-save-dir", kOne, "send metrics.jsonl of the --save folder to W&B from outside; leave it out"},
          });
}

void add_zero_inert(OptionTable& table) {
  no_effect(table, {
                       {"--zero-reduce-scatter", kFlag, kZeroBuffers},
                       {"--zero-contigious-gradients", kFlag, kZeroBuffers},
                       {"--zero-reduce-bucket-size", kOne, kZeroBuffers},
                       {"--zero-allgather-bucket-size", kOne, kZeroBuffers},
                       {"--use-pin-memory", kFlag, kZeroBuffers},
                   });
  table.add_without_effect("--remote-device", kOne, "parameters stay where they are")
      .choices({"none"})
      .refuse_value("*", "offload is not built in; leave it out");
  table.group("Memory optimizations");
  no_effect(
      table,
      {
          {"--scattered-embeddings", kFlag, "it changes where DeepSpeed keeps tensors, not what is computed"},
          {"--split-transformers", kFlag, "it changes where DeepSpeed keeps tensors, not what is computed"},
          {"--memory-centric-tiled-linear", kFlag, "it changes where DeepSpeed keeps tensors, not what is computed"},
          {"--tile-factor", kOne, "it changes where DeepSpeed keeps tensors, not what is computed"},
      });
}

void add_deepspeed_inert(OptionTable& table) {
  constexpr const char* kFlagInstead = "use --deepspeed";
  refused(table, {
                     {"--deepscale", kFlag, kFlagInstead},
                     {"--deepscale_config", kOne, "use --deepspeed_config"},
                     {"--deepspeed_mpi", kFlag, kFlagInstead},
                 });
}

}  // namespace espalier::config::internal
