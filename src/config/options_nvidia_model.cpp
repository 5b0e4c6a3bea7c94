// The options of NVIDIA's Megatron-LM that shape the model and that `espalier train gpt` does not use: accepted with
// the reason, or refused with what to use instead. Accepted is only what cannot change the numbers that a run computes.
#include "config/internal/inert_rows.h"
#include "config/internal/rows.h"

namespace espalier::config::internal {
namespace {

constexpr const char* kOnlyLatent = "only multi-latent attention reads it";
constexpr const char* kOnlyFp4 = "only fp4 reads it";
constexpr const char* kOnlySparse = "only other kinds of attention read it, which are refused";
constexpr const char* kOnlyMtp = "only multi-token prediction reads it";
constexpr const char* kOnlyHyper = "only hyper-connections read it";
constexpr const char* kOnlyInvariant = "only --batch-invariant-mode reads it, which is refused";
constexpr const char* kMlpChunks = "it divides the work of an MLP, not what it computes";
constexpr const char* kDeterministic = "the same run on the same machine always has the same bits";
constexpr const char* kSums = "products of bf16 are always summed in fp32";
constexpr const char* kMemoryOnly = "it changes where tensors are kept, not what is computed";
constexpr const char* kOnlyMrope = "only mrope reads it, which is refused";
constexpr const char* kYarnRounds = "the range of yarn is always rounded";
constexpr const char* kPerToken = "it is the default, --loss-average token";
constexpr const char* kNoScores = "attention never stores its score matrix";
constexpr const char* kScaling = "the scaling cancels out where scores are fp32, as they are here";

void add_network_size_rows(OptionTable& table) {
  table.group("network size");
  no_effect(table, kFlag, kDeterministic, {"--deterministic-mode"});
  no_effect(table, kFlag, kFused,
            {"--cross-entropy-loss-fusion", "--use-fused-weighted-squared-relu", "--fused-residual-rmsnorm",
             "--use-transformer-engine-op-fuser", "--use-grouped-gemm-for-dense-mlp", "--use-te-activation-func"});
  no_effect(table, kOne, kFused, {"--cross-entropy-fusion-impl"});
  no_effect(table, kFlag, kOnlyMtp,
            {"--mtp-standalone", "--mtp-use-repeated-layer", "--mtp-detach-heads", "--mtp-hsm"});
  refused(table, kOne, "multi-token prediction is not built in; leave it out", {"--mtp-num-layers"});
  no_effect(table, kOne, kOnlyMtp, {"--mtp-loss-scaling-factor", "--mtp-hybrid-override-pattern"});
  no_effect(table, kOne, kNoScores, {"--flash-attention-version"});
  refused(table, kOne, "use an --activation of --help=--activation, or leave it out",
          {"--glu-linear-offset", "--activation-func-clamp-value"});
  refused(table, kFlag, "use --qk-layernorm, or leave it out", {"--qk-l2-norm"});
  refused(table, kFlag, "attention has no gate; leave it out", {"--attention-output-gate"});
  no_effect(table, kFlag, kPerToken, {"--calculate-per-token-loss"});
  refused(table, kOne, "attention has one form here; leave it out", {"--experimental-attention-variant"});
  no_effect(
      table, kOne, kOnlySparse,
      {"--dsa-indexer-n-heads", "--dsa-indexer-head-dim", "--dsa-indexer-topk", "--dsa-indexer-topk-freq",
       "--dsa-indexer-skip-topk-offset", "--dsa-indexer-loss-coeff", "--dsa-kernel-backend",
       "--dsa-indexer-k-norm-epsilon", "--linear-conv-kernel-dim", "--linear-key-head-dim", "--linear-value-head-dim",
       "--linear-num-key-heads", "--linear-num-value-heads", "--linear-attention-freq"});
  no_effect(table, kFlag, kOnlySparse,
            {"--dsa-indexer-use-sparse-loss", "--dsa-indexer-rope-interleaved", "--dsa-indexer-k-norm-fp32"});
  no_effect_negatives(table, kOnlySparse, {"dsa-indexer-rotate-activation", "dsa-indexer-scoring-relu"});
  refused(table, kOne, "use --adjust-word-embedding-init --word-embedding-init-std", {"--embedding-init-method-std"});
  no_effect(table, kOne, "it follows from --mup-base-hidden-size", {"--mup-width-mult"});
  no_effect(table, kFlag, kScaling, {"--apply-query-key-layer-scaling"});
  no_effect(table, kFlag, kSums, {"--disable-bf16-reduced-precision-matmul"});
  no_effect(table, kList, kOnlyWeightShards, {"--gtp-remat-opt-in-modules"});
  refused(table, kFlag, "hyper-connections are not built in; leave it out", {"--enable-mhc-connections"});
  no_effect(table, kOne, kOnlyHyper,
            {"--mhc-num-residual-streams", "--mhc-sinkhorn-iterations", "--mhc-init-gating-factor",
             "--mhc-recompute-layer-num"});
  no_effect_negatives(table, kMemoryOnly, {"clone-scatter-output-in-embedding"});
  refused(table, kFlag, "kernels may sum in another order for another batch size; leave it out",
          {"--batch-invariant-mode"});
  no_effect(table, kOne, kOnlyInvariant, {"--batch-invariant-backend"});
  no_effect(table, kList, kOnlyMrope, {"--mrope-section"});
  refused(table, kFlag, "Mamba layers are not built in; leave it out", {"--is-hybrid-model"});
  no_effect(table, kOne, kOnlyMamba,
            {"--mamba-state-dim", "--mamba-head-dim", "--mamba-num-groups", "--mamba-num-heads",
             "--gdp-num-householder", "--gdp-num-chunk-states-to-recompute"});
  no_effect(table, kFlag, kOnlyMamba, {"--disable-mamba-mem-eff-path", "--gdp-cutedsl-kernel"});
  no_effect(table, kOne, kMlpChunks, {"--mlp-chunks-for-training"});
  refused(table, kOne, "every layer has the same --window-size; leave it out", {"--window-attn-skip-freq"});
  no_effect(table, kFlag, kYarnRounds, {"--yarn-correction-range-round-to-int"});
  refused(table, kFlag, "the range of yarn is always rounded; leave it out",
          {"--no-yarn-correction-range-round-to-int"});
  no_effect(table, kOne, kOnlyT5, {"--relative-attention-num-buckets", "--relative-attention-max-distance"});
  refused(table, kOne, "every layer has the same positions; leave it out", {"--no-rope-freq"});
  refused(table, kFlag, "use an --activation of --help=--activation, or leave it out", {"--quick-geglu"});
  refused(table, kOne, "use --rope-scaling-attention-factor", {"--mscale", "--mscale-all-dim"});
  refused(table, kOne, "all layers have one shape; leave it out",
          {"--heterogeneous-layers-config-path", "--heterogeneous-layers-config-encoded-json"});
}

void add_mixture_of_experts_rows(OptionTable& table) {
  table.group("mixture of experts");
  no_effect(table, kOne, kOnlyExperts,
            {"--expert-tensor-parallel-size",
             "--expert-tensor-parallel-num-weight-shards",
             "--moe-shared-expert-intermediate-size",
             "--moe-shared-expert-glu-interleave-size",
             "--moe-ffn-hidden-size",
             "--moe-router-topk",
             "--moe-router-num-groups",
             "--moe-router-group-topk",
             "--moe-router-topk-scaling-factor",
             "--moe-router-score-function",
             "--moe-router-dtype",
             "--moe-router-bias-update-rate",
             "--moe-router-quantile-balancing-ema",
             "--moe-router-force-biased",
             "--moe-z-loss-coeff",
             "--moe-input-jitter-eps",
             "--moe-token-dispatcher-type",
             "--moe-flex-dispatcher-backend",
             "--moe-expert-capacity-factor",
             "--moe-token-drop-policy",
             "--moe-latent-size",
             "--moe-flex-dispatcher-num-sms",
             "--moe-deepep-num-sms",
             "--moe-hybridep-num-sms",
             "--moe-hybridep-num-blocks-permute",
             "--moe-hybridep-num-blocks-unpermute",
             "--moe-hybridep-num-sms-preprocessing",
             "--moe-dispatch-fwd-dtype",
             "--moe-combine-bwd-dtype",
             "--moe-mlp-glu-interleave-size",
             "--moe-expert-rank-capacity-factor",
             "--moe-paged-stash-page-size",
             "--moe-paged-stash-buffer-size-factor-cuda",
             "--moe-paged-stash-buffer-size-factor-cpu",
             "--moe-routing-trace-path",
             "--moe-routing-trace-max-training-iters",
             "--save-tokens-per-expert-interval",
             "--moe-layer-freq",
             "--moe-upcycling-granularity"});
  no_effect(table, kFlag, kOnlyExperts,
            {"--overlap-moe-expert-parallel-comm",
             "--overlap-dispatch-backward-with-experts-wgrad",
             "--ep-overlap-early-attn-memory-release",
             "--high-priority-a2a-comm-stream",
             "--moe-shared-expert-gate",
             "--moe-shared-expert-overlap",
             "--use-grouped-gemm-for-shared-expert",
             "--moe-enable-routing-replay",
             "--moe-router-padding-for-quantization",
             "--moe-router-padding-for-fp8",
             "--moe-router-pre-softmax",
             "--moe-router-enable-expert-bias",
             "--moe-router-force-load-balancing",
             "--moe-grouped-gemm",
             "--moe-use-grouped-tensor",
             "--moe-single-grouped-weight",
             "--moe-single-grouped-bias",
             "--moe-enable-deepep",
             "--moe-permute-fusion-into-hybridep",
             "--moe-hybridep-pad-uneven-dispatch-inputs",
             "--moe-per-layer-logging",
             "--moe-pad-expert-input-to-capacity",
             "--moe-pad-experts-for-cuda-graph-inference",
             "--moe-layer-recompute",
             "--moe-permute-fusion",
             "--moe-router-fusion",
             "--moe-apply-probs-on-input",
             "--moe-ncclep-zero-copy",
             "--moe-paged-stash",
             "--moe-routing-trace-capture-logits",
             "--moe-routing-trace-capture-hidden-states",
             "--moe-routing-trace-dump-weights",
             "--gtp-expert-remat-nccl-ub"});
  refused(table, kFlag, "mixture of experts is not built in; leave it out", {"--moe-use-upcycling"});
  no_effect(table, kList, kOnlyExperts, {"--moe-router-load-balancing-type", "--moe-aux-loss-coeff"});
}

void add_multi_latent_attention_rows(OptionTable& table) {
  table.group("multi-latent attention");
  refused(table, kFlag, "multi-latent attention is not built in; leave it out", {"--multi-latent-attention"});
  no_effect(table, kOne, kOnlyLatent,
            {"--q-lora-rank", "--kv-lora-rank", "--qk-head-dim", "--qk-pos-emb-head-dim", "--v-head-dim"});
  no_effect(table, kFlag, kOnlyLatent, {"--cache-mla-latents", "--mla-down-proj-fusion"});
}

void add_transformer_engine_rows(OptionTable& table) {
  table.group("Transformer-Engine");
  no_effect(table, kFlag, kNotWithFp8, {"--fp8-param-gather", "--fp8-output-proj", "--first-last-layers-bf16"});
  no_effect(table, kOne, kNotWithFp8, {"--num-layers-at-start-in-bf16", "--num-layers-at-end-in-bf16"});
  no_effect(table, kFlag, "weights are rounded to fp8 where they are used, and kept in bf16",
            {"--reuse-grad-buf-for-mxfp8-param-ag", "--keep-fp8-transpose-cache"});
  no_effect(table, kFlag, kOnlyFp4, {"--fp4-param-gather"});
  refused(table, kOne, "use --bf16", {"--te-precision-config-file", "--fp4-format"});
  no_effect(table, kOne, "only --fp8-recipe custom reads it, which is refused", {"--fp8-quantizer-factory"});
  no_effect(table, kOne, kOnlyFp4, {"--fp4-recipe", "--fp4-quantizer-factory"});
  refused(table, kFlag, "Kitchen is not built in; use --bf16", {"--use-kitchen-attention"});
  no_effect(table, kOne, kOnlySparse, {"--kitchen-attention-backend"});
  refused(table, kOne, "Kitchen is not built in; use --bf16", {"--kitchen-config-file", "--kitchen-recipe-number"});
}

// One value of each changes nothing.
void add_model_values(OptionTable& table) {
  table.group("network size");
  table.add_without_effect("--rope-type", kOne, "--position-embedding-type says which positions there are")
      .choices({"rope"})
      .refuse_value("*", "use --position-embedding-type rotary --rope-scaling-type yarn");
  table.add_without_effect("--softmax-type", kOne, "attention has the plain softmax")
      .choices({"vanilla"})
      .refuse_value("*", "attention has the plain softmax; leave it out");
  table.add_without_effect("--tensor-parallel-num-weight-shards", kOne, "tensor ranks divide weights once")
      .choices({"1"})
      .refuse_value("*", "tensor ranks divide weights once; use --zero-stage 3 for weights divided over replicas");
  table.group("mixture of experts");
  table.add_without_effect("--expert-model-parallel-size", kOne, "one expert is not divided")
      .choices({"1"})
      .refuse_value("*", "mixture of experts is not built in; use --tensor-model-parallel-size");
}

}  // namespace

void add_nvidia_model(OptionTable& table) {
  add_network_size_rows(table);
  add_mixture_of_experts_rows(table);
  add_multi_latent_attention_rows(table);
  add_transformer_engine_rows(table);

  add_model_values(table);
}

}  // namespace espalier::config::internal
