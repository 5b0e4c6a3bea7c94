// The options that Argonne's Megatron-DeepSpeed added to BigScience's and that `espalier train gpt` does not use. Each
// is in the group in which upstream has it. Accepted is only what cannot change the numbers a run computes.
#include "config/internal/inert_rows.h"
#include "config/internal/rows.h"

namespace espalier::config::internal {
namespace {

constexpr const char* kOnlyVisionModels = "only vision models read it";
constexpr const char* kOnlyRetro = "only Retro reads it";
constexpr const char* kOnlyTeachers = "only distillation reads it";
constexpr const char* kDelayedScaling = "scales of --fp8-format are of the tensor itself, not of those before it";
constexpr const char* kExpertsRefused = "mixture of experts is not built in; leave it out";
constexpr const char* kBuiltArrays = "index arrays are built from the data; --data-cache-path keeps them";

}  // namespace

void add_argonne_model(OptionTable& table) {
  table.group("network size");
  no_effect(table, {
                       {"--mlp-type", kOne, kOnlyExperts},
                       {"--topk", kOne, kOnlyExperts},
                       {"--expert-interval", kOne, kOnlyExperts},
                       {"--disable-mem-efficient-ln", kFlag, "layer norms have one kernel"},
                   });
  refused(table, {{"--decoder-num-layers", kOne, "only T5 reads it (espalier train t5); leave it out"}});
  table.add_without_effect("--num-experts", kList, "one expert is a plain MLP")
      .choices({"1"})
      .refuse_value("*", kExpertsRefused);
  refused(table, {{"--num-experts-switch", kOne, kExpertsRefused}});
  table.group("Transformer-Engine");
  no_effect(table, {
                       {"--fp8-margin", kOne, kDelayedScaling},
                       {"--fp8-interval", kOne, kDelayedScaling},
                       {"--fp8-amax-history-len", kOne, kDelayedScaling},
                       {"--fp8-amax-compute-algo", kOne, kDelayedScaling},
                   });
  table.add_without_effect("--no-fp8-wgrad", kFlag, kNotWithFp8).alias("--disable-fp8-wgrad");
  table.add_without_effect("--transformer-impl", kOne, "layers have one implementation, which computes the same")
      .choices({"local", "transformer_engine"})
      .refuse_value("inference_optimized", "use `espalier generate`");
}

void add_argonne_optimizers(OptionTable& table) {
  table.group("regularization");
  for (const char* name : {"--dshampooadamw-max-preconditioner-dim", "--dshampooadamw-precondition-freq",
                           "--dshampooadamw-use-decoupled-weight-decay", "--dshampooadamw-eps"})
    table.add_without_effect(name, kOne, kOtherOptimizer);
  refused(table, {{"--muonadamw-beta1", kOne, "use --adam-beta1"},
                  {"--muonadamw-beta2", kOne, "use --adam-beta2"},
                  {"--muonadamw-eps", kOne, "use --adam-eps"}});
  no_effect(table, {
                       {"--ds_fused_adam", kFlag, "the optimizer is always fused"},
                       {"--schedulefree-for-each", kFlag, "kernels are always fused"},
                   });
}

void add_argonne_training(OptionTable& table) {
  table.group("training");
  no_effect(table, {
                       {"--use-flash-attn-triton", kFlag, "attention never stores its score matrix"},
                       {"--disable-moe-token-dropping", kFlag, kOnlyExperts},
                       {"--moe-train-capacity-factor", kOne, kOnlyExperts},
                       {"--moe-eval-capacity-factor", kOne, kOnlyExperts},
                       {"--moe-min-capacity", kOne, kOnlyExperts},
                       {"--moe-loss-coeff", kOne, kOnlyExperts},
                       {"--create-moe-param-group", kFlag, kOnlyExperts},
                       {"--disable-moe-top2-2nd-expert-sampling", kFlag, kOnlyExperts},
                       {"--use-tutel", kFlag, kOnlyExperts},
                       {"--enable-zbh1-exact-semantics", kFlag, "the ZB-H1 schedule here is exact"},
                       {"--force-ds-sequence-parallel", kFlag, "--ds-sequence-parallel-size decides it"},
                       {"--trace-dir", kOne, "traces go to logs/ in the --save folder"},
                   });
  refused(table, {
                     {"--random-ltd", kFlag, "every layer sees every token; leave it out"},
                     {"--ds-inference", kFlag, "use `espalier generate`"},
                     {"--use-dataset-only", kOne, "it serves another trainer; leave it out"},
                     {"--profile-ranks", kList, "use --profile-step-start and --profile-step-end"},
                 });
}

void add_argonne_distributed(OptionTable& table) {
  table.group("initialization");
  refused(table, {{"--data-parallel-random-init", kFlag, "replicas start out equal; leave it out"}});
  table.group("checkpointing");
  no_effect(table, {{"--no-initialization", kFlag, "weights that a checkpoint replaces are never drawn"}});
  table.group("distributed");
  no_effect(table,
            {
                {"--enable-expert-tensor-parallelism", kFlag, kOnlyExperts},
                {"--overlap-p2p-communication", kFlag, "it controls when stages communicate, not what they send"},
                {"--use-ring-exchange-p2p", kFlag, "it controls how stages communicate, not what they send"},
                {"--empty-unused-memory-level", kOne, "freed memory is reused, without gaps between steps"},
            });
  table.add_without_effect("--moe-expert-parallel-size", kOne, "one expert is not divided")
      .choices({"1"})
      .refuse_value("*", "mixture of experts is not built in; use --tensor-model-parallel-size");
  refused(table, {{"--standalone-embedding-stage", kFlag,
                   "use --pp-partition-method parameters, which counts the embedding"}});
  table.group("ZeRO configurations");
  refused(table, {{"--use-mics", kFlag, "use --zero-stage 3"}});
}

void add_argonne_data(OptionTable& table) {
  table.group("data and dataloader");
  no_effect(table, {
                       {"--repeated-dataloader", kFlag, "the data are repeated for as long as the run lasts"},
                       {"--return-data-index", kFlag, "nothing reads the number of a sample in its data set"},
                       {"--shuffle-sample-in-corpus", kFlag, "samples of all files are shuffled and mixed by weight"},
                       {"--blend-sample-in-corpus", kFlag, "samples of all files are shuffled and mixed by weight"},
                   });
  refused(table,
          {
              {"--aml-data-download-path", kOne, "put the folder in front of each prefix of --data-path"},
              {"--train-data-exact-num-epochs", kOne, "set --train-samples to the samples of that many epochs"},
              {"--train-idx-path", kOne, kBuiltArrays},
              {"--train-desc-path", kOne, kBuiltArrays},
              {"--train-doc-idx-path", kOne, kBuiltArrays},
              {"--train-sample-idx-path", kOne, kBuiltArrays},
              {"--train-shuffle-idx-path", kOne, kBuiltArrays},
              {"--data-efficiency-curriculum-learning", kFlag,
               "leave it out; DeepSpeed's curriculum_learning is read, and --seq-length-stages says the same"},
              {"--no-data-sharding", kFlag,
               "the cyclic order is shuffled as a whole unless --cyclic-layout cuts it into parts; leave it out"},
          });
}

void add_argonne_logging(OptionTable& table) {
  table.group("logging");
  no_effect(table,
            {
                {"--timing-log-option", kOne, "use --profile-step-start for the times of a step"},
                {"--no-barrier-with-level-1-timing", kFlag, "times are measured without waiting for other ranks"},
                {"--log-optimizer-states-to-tensorboard", kFlag,
                 "norms of moments are not written; --log-params-norm and the gradient's norm are"},
                {"--log-world-size-to-tensorboard", kFlag, "it is always written"},
                {"--log-memory-to-tensorboard", kFlag, "`espalier plan` says what a step needs"},
            });
}

void add_argonne_families(OptionTable& table) {
  table.group("vision");
  for (const char* name : {"--img-h", "--img-w", "--classes-fraction", "--data-per-class-fraction", "--head-lr-mult",
                           "--vision-pretraining-type", "--vision-backbone-type", "--swin-backbone-type", "--mask-type",
                           "--mask-factor", "--iter-per-epoch", "--dino-local-img-size", "--dino-local-crops-number",
                           "--dino-head-hidden-size", "--dino-bottleneck-size", "--dino-freeze-last-layer",
                           "--dino-warmup-teacher-temp", "--dino-teacher-temp", "--dino-warmup-teacher-temp-epochs"})
    table.add_without_effect(name, kOne, kOnlyVisionModels);
  no_effect(table, {
                       {"--vision-pretraining", kFlag, kOnlyVisionModels},
                       {"--dino-norm-last-layer", kFlag, kOnlyVisionModels},
                   });
  table.group("knowledge distillation");
  no_effect(table, {
                       {"--num-layers-teacher", kOne, kOnlyTeachers},
                       {"--num-experts-teacher", kList, kOnlyTeachers},
                       {"--hidden-size-teacher", kOne, kOnlyTeachers},
                       {"--num-attention-heads-teacher", kOne, kOnlyTeachers},
                       {"--kd-alpha-ce", kOne, kOnlyTeachers},
                       {"--kd-beta-ce", kOne, kOnlyTeachers},
                       {"--kd-temp", kOne, kOnlyTeachers},
                       {"--load-teacher", kOne, kOnlyTeachers},
                   });
  refused(table, {
                     {"--kd", kFlag, "distillation is not built in; leave it out"},
                     {"--mos", kFlag, "distillation is not built in; leave it out"},
                 });
  table.group("inference");
  no_effect(table, {
                       {"--inference-batch-times-seqlen-threshold", kOne, "only text generation reads it"},
                       {"--max-tokens-to-oom", kOne, "only text generation reads it"},
                       {"--output-bert-embeddings", kFlag, "only BERT reads it"},
                       {"--bert-embedder-type", kOne, "only BERT reads it"},
                   });
  table.group("retro");
  no_effect(table, {
                       {"--retro-workdir", kOne, kOnlyRetro},
                       {"--retro-cyclic-train-iters", kOne, kOnlyRetro},
                       {"--retro-encoder-layers", kOne, kOnlyRetro},
                       {"--retro-encoder-hidden-dropout", kOne, kOnlyRetro},
                       {"--retro-encoder-attention-dropout", kOne, kOnlyRetro},
                       {"--retro-num-neighbors", kOne, kOnlyRetro},
                       {"--retro-num-retrieved-chunks", kOne, kOnlyRetro},
                       {"--retro-return-doc-ids", kFlag, kOnlyRetro},
                   });
  refused(table, {{"--retro-add-retriever", kFlag, "use 'espalier train retro'"}});
}

}  // namespace espalier::config::internal
