// The options of NVIDIA's Megatron-LM about the course of a training run that `espalier train gpt` does not use (the
// rules: options_nvidia_model.cpp).
#include "config/internal/inert_rows.h"
#include "config/internal/rows.h"

namespace espalier::config::internal {
namespace {

constexpr const char* kNoGraphs = "steps are not captured as CUDA graphs";
constexpr const char* kTrace = "--profile-step-start and --profile-step-end write a trace for Perfetto";
constexpr const char* kOffloadRefused = "offload is not built in; use --recompute-granularity full, or leave it out";
constexpr const char* kOnlyOffload = "only offload reads it, which is refused";
constexpr const char* kOnlyFim = "only fill-in-the-middle reads it";
constexpr const char* kMappedFiles = "token files are memory-mapped and need no such help";
constexpr const char* kRandom = "randomness is counter-based and has no state";
constexpr const char* kNoExperiments = "nothing waits after it";
constexpr const char* kSelective = "selective recompute has nothing left to do: see --recompute-granularity";
constexpr const char* kGradNorm = "loss and norm of the gradient of every step are in metrics.jsonl";
constexpr const char* kNan = "losses and gradients are always checked";
constexpr const char* kNoSync = "steps need no such pause";
constexpr const char* kSignals = "SIGTERM and SIGUSR1 always save and exit";
constexpr const char* kNoGarbage = "there is no garbage collector";
constexpr const char* kNoDump = "`espalier checkpoint inspect` lists the parameters";
constexpr const char* kOneModel = "there is one implementation of the model";
constexpr const char* kTestMode = "nothing reads it";
constexpr const char* kTokensAreIds = "data are already token ids when a run starts";
constexpr const char* kNoMask = "attention never stores a mask";

void add_activation_recompute_rows(OptionTable& table) {
  table.group("activation recompute");
  no_effect(table, kList, kSelective, {"--recompute-modules"});
}

void add_regularization_rows(OptionTable& table) {
  table.group("regularization");
  refused(table, kFlag, "biases and norms do not decay; leave it out", {"--apply-wd-to-qk-layernorm"});
  refused(table, kFlag, "queries, keys and values are separate matrices; leave it out", {"--muon-no-split-qkv"});
  no_effect(table, kFlag, "kernels are always fused", {"--muon-use-syrk"});
  no_effect(table, kOne, "products are of the run's type, with sums in fp32", {"--muon-fp32-matmul-prec"});
  table.add_without_effect("--muon-tp-mode", kOne, "matrices are whole in every layout, and ranks share the work")
      .choices({"duplicated", "distributed"})
      .refuse_value("blockwise", "its result depends on the layout; leave it out");
  table.add_without_effect("--muon-scalar-optimizer", kOne, "AdamW updates everything that is not a matrix of a layer")
      .choices({"adam"})
      .refuse_value("*", "AdamW updates everything that is not a matrix of a layer; leave it out");
  refused(table, kOne, "biases and norms do not decay; leave it out", {"--no-weight-decay-cond-type"});
}

void add_training_rows(OptionTable& table) {
  table.group("training");
  no_effect(table, kList, kNoGraphs, {"--cuda-graph-scope", "--cuda-graph-modules"});
  refused(table, kOne, kOffloadRefused, {"--cpu-offloading-num-layers"});
  no_effect(table, kFlag, kOnlyOffload,
            {"--cpu-offloading-retain-pinned-cpu-buffers", "--use-torch-optimizer-for-cpu-offload",
             "--overlap-cpu-optimizer-d2h-h2d", "--no-pin-cpu-grads", "--no-pin-cpu-params"});
  no_effect(
      table, kFlag, kNoGraphs,
      {"--enable-cuda-graph", "--external-cuda-graph", "--delay-offload-until-cuda-graph", "--optimizer-cuda-graph"});
  no_effect(table, kOne, kNoGraphs, {"--cuda-graph-warmup-steps", "--cuda-graph-impl"});
  refused(table, kFlag, kOffloadRefused, {"--fine-grained-activation-offloading", "--optimizer-cpu-offload"});
  no_effect(table, kList, kOnlyOffload, {"--offload-modules"});
  no_effect(table, kOne, kOnlyOffload,
            {"--min-offloaded-tensor-size", "--delta-offload-bytes-across-pp-ranks", "--activation-offload-fraction",
             "--fine-grained-offloading-max-inflight-offloads", "--optimizer-offload-fraction"});
  no_effect(table, kFlag, kTrace,
            {"--use-pytorch-profiler", "--pytorch-profiler-collect-shapes", "--pytorch-profiler-collect-callstack",
             "--pytorch-profiler-collect-chakra", "--record-memory-history", "--record-shapes", "--nvtx-ranges"});
  no_effect(table, kOne, kTrace, {"--memory-snapshot-path"});
  refused(table, kOne, "use --rampup-batch-size", {"--step-batch-size-schedule"});
  refused(table, kFlag, "use --rampup-batch-size", {"--decrease-batch-size-if-needed"});
  refused(table, kOne, "use --check-replicas", {"--check-weight-hash-across-dp-replicas-interval"});
  no_effect(table, kOne, kNoSync, {"--gpu-sniff-test-interval", "--train-sync-interval"});
  no_effect(table, kFlag, kSignals, {"--exit-signal-handler-for-dataloader", "--exit-signal-handler-for-training"});
  no_effect(table, kFlag, kNoGarbage, {"--manual-gc"});
  no_effect(table, kOne, kNoGarbage, {"--manual-gc-interval"});
  no_effect_negatives(table, kNoGarbage, {"manual-gc-eval"});
  refused(table, kList, "use --skip-train-iteration-range FIRST-LAST", {"--iterations-to-skip"});
  no_effect(table, kFlag, kNan, {"--no-check-for-nan-in-loss-and-grad"});
  no_effect(table, kFlag, kGradNorm, {"--check-for-large-grads", "--check-for-spiky-loss"});
  refused(table, kOne, "use --skip-train-iteration-range FIRST-LAST", {"--result-rejected-tracker-filename"});
  no_effect(table, kFlag, kFused, {"--no-bias-swiglu-fusion", "--no-rope-fusion"});
  no_effect(table, kOne, kNoDump, {"--dump-param-to-param-group-map"});
  no_effect(table, kFlag, kOneModel, {"--use-mcore-models"});
}

void add_initialization_rows(OptionTable& table) {
  table.group("initialization");
  no_effect(table, kFlag, kRandom, {"--te-rng-tracker", "--inference-rng-tracker"});
}

void add_learning_rate_rows(OptionTable& table) {
  table.group("learning rate");
  refused(table, kOne, "all weights have one learning rate; leave it out", {"--decoupled-lr", "--decoupled-min-lr"});
  refused(table, kFlag, "every weight is trained; leave it out", {"--freeze-all-layers"});
}

void add_mixed_precision_rows(OptionTable& table) {
  table.group("mixed precision");
  no_effect(table, kOne, kOnlyMamba, {"--mamba-training-ssm-states-dtype"});
}

void add_validation_rows(OptionTable& table) {
  table.group("validation");
  refused(table, kOne, "use --eval-interval", {"--start-eval-at-iter"});
  refused(table, kOne, "evaluation uses the batches of training; leave it out",
          {"--eval-global-batch-size", "--eval-micro-batch-size"});
  no_effect(table, kFlag, kTestMode, {"--test-mode"});
  refused(table, kFlag, "use --eval-iters", {"--full-validation"});
  refused(table, kFlag, "use --valid-weighted-split-paths, which names several sets", {"--multiple-validation-sets"});
  refused(table, kList, "use --valid-weighted-split-paths, which names several sets", {"--validation-set-names"});
}

void add_data_and_dataloader_rows(OptionTable& table) {
  table.group("data and dataloader");
  refused_negatives(table, "use --make-vocab-size-divisible-by 1", {"pad-vocab-size"});
  refused(table, kOne, "the tokenizer is as its file says; leave it out", {"--tokenizer-metadata"});
  refused(table, kFlag, "the tokenizer is as its file says; leave it out", {"--tokenizer-sentencepiece-legacy"});
  refused_negatives(table, "the tokenizer is as its file says; leave it out",
                    {"tokenizer-sentencepiece-ignore-extra-whitespaces"});
  no_effect(table, kFlag, kTokensAreIds,
            {"--tokenizer-hf-no-use-fast", "--tokenizer-hf-no-include-special-tokens", "--use-gigatoken",
             "--allow-ambiguous-pad-tokens"});
  refused(table, kOne, "the ids of NullTokenizer end at --vocab-size; leave it out",
          {"--null-tokenizer-eod-id", "--null-tokenizer-pad-id"});
  no_effect(table, kOne, kTokensAreIds, {"--chat-template"});
  refused(table, kOne, "use --train-samples for one phase, and continue with other data by --load and --override",
          {"--phase-transition-iterations"});
  refused(table, kOne, "use --data-path, --data-file-list or --train-weighted-split-paths-path",
          {"--data-args-path", "--per-split-data-args-path"});
  no_effect(table, kOne, kMappedFiles, {"--per-dataset-sequences-path", "--num-dataset-builder-threads"});
  no_effect(
      table, kFlag, kMappedFiles,
      {"--dataloader-fast-cache-load", "--dataloader-defer-npy-index-mmap", "--no-mmap-bin-files", "--disable-msc"});
  refused(table, kFlag, "make a small set with `espalier preprocess`, or with NullTokenizer from lines of ids",
          {"--mock-data"});
  refused(table, kFlag, "use --reset-attention-mask", {"--dataloader-inter-document-masking"});
  no_effect(table, kFlag, kNoMask, {"--no-create-attention-mask-in-dataloader"});
  refused(table, kOne, "copy the data to a file system first", {"--object-storage-cache-path"});
  refused(table, kFlag, "fill-in-the-middle is not built in; leave it out", {"--fim-data"});
  no_effect(table, kOne, kOnlyFim,
            {"--fim-rate", "--fim-spm-rate", "--fim-split-sample", "--fim-fragment-rate", "--fim-no-prefix",
             "--fim-prefix-token", "--fim-middle-token", "--fim-suffix-token", "--fim-pad-token", "--fim-eod-token"});
  refused(table, kFlag, "copy the data to a file system first", {"--enable-msc"});
}

void add_experimental_rows(OptionTable& table) {
  table.group("experimental");
  no_effect(table, kFlag, kNoExperiments, {"--enable-experimental"});
  refused(table, kList, "use the options of the model", {"--spec"});
  refused(table, kOne, "Mamba layers are not built in; leave it out",
          {"--hybrid-layer-pattern", "--hybrid-override-pattern"});
  refused(table, kOne, "use --recipe", {"--yaml-cfg"});
  refused(table, kFlag, "master weights, gradients and moments are fp32; leave it out",
          {"--use-precision-aware-optimizer"});
}

// One value of each changes nothing.
void add_training_values(OptionTable& table) {
  table.group("training");
  table.add_without_effect("--exit-signal", kOne, kSignals)
      .choices({"SIGTERM", "SIGINT", "SIGUSR1"})
      .refuse_value("*", "SIGTERM, SIGINT and SIGUSR1 save and exit; send one of them");
  table.group("mixed precision");
  table.add_without_effect("--output-logit-dtype", kOne, "the loss is always computed in fp32")
      .choices({"fp32"})
      .refuse_value("*", "the loss is always computed in fp32; leave it out");
  for (const char* name : {"--main-grads-dtype", "--main-params-dtype", "--exp-avg-dtype", "--exp-avg-sq-dtype"})
    table.add_without_effect(name, kOne, "master weights, gradients and moments are fp32")
        .choices({"fp32"})
        .refuse_value("*", "master weights, gradients and moments are fp32; use --zero-stage to divide them");
  table.group("data and dataloader");
  table.add_without_effect("--mid-level-dataset-surplus", kOne, "sets of a blend have 0.5 % more samples than it draws")
      .choices({"0.005"})
      .refuse_value("*", "sets of a blend have 0.5 % more samples than it draws, as 0.005 says; leave it out");
}

}  // namespace

void add_nvidia_training(OptionTable& table) {
  add_activation_recompute_rows(table);
  add_regularization_rows(table);
  add_training_rows(table);
  add_initialization_rows(table);
  add_learning_rate_rows(table);
  add_mixed_precision_rows(table);
  add_validation_rows(table);
  add_data_and_dataloader_rows(table);
  add_experimental_rows(table);

  add_training_values(table);
}

}  // namespace espalier::config::internal
