#include "config/internal/deepspeed_keys.h"

#include "config/deepspeed_config.h"

namespace espalier::config {
namespace internal {
namespace {

using enum KeyEffect;

constexpr const char* kExchangeBuckets = "it sizes or times exchanges, which are bucketed automatically here";
constexpr const char* kGathered = "layers are gathered one at a time, while they are used";
constexpr const char* kMonitor = "metrics go to metrics.jsonl and TensorBoard of the --save folder";
constexpr const char* kOffload = "offload is not built in; leave it out";
constexpr const char* kQuantized = "what ranks exchange is not quantized; leave it out, or use --grad-reduce-type bf16";
constexpr const char* kRecomputeKeys = "recompute follows --checkpoint-activations or --recompute-granularity";
constexpr const char* kSummed = "the sum over ranks is fp32 and divided once";

const std::vector<DeepSpeedKey> kKeys = {
    {"train_batch_size", kUsed, "--global-batch-size"},
    {"train_micro_batch_size_per_gpu", kUsed, "--micro-batch-size"},
    {"gradient_accumulation_steps", kUsed, "--global-batch-size / (--micro-batch-size * data-parallel size)"},
    {"gradient_clipping", kUsed, "--clip-grad; where it is absent, --clip-grad applies and DeepSpeed would not clip"},
    {"communication_data_type", kUsed, "--grad-reduce-type: fp32 or bfp16"},
    {"fp16", kBlock, "read where enabled"},
    {"fp16.enabled", kUsed, "--fp16; both or neither"},
    {"fp16.loss_scale", kUsed, "--loss-scale, which it overrides; 0 is dynamic"},
    {"fp16.initial_scale_power", kUsed,
     "--initial-loss-scale, 2 to this power, which it overrides; 16 where it is absent"},
    {"fp16.loss_scale_window", kUsed, "--loss-scale-window, which it overrides"},
    {"fp16.hysteresis", kUsed, "--hysteresis, which it overrides"},
    {"fp16.min_loss_scale", kUsed, "--min-loss-scale, which it overrides"},
    {"fp16.consecutive_hysteresis", kRefusedIfOn, "--hysteresis is restored when the scale grows, not by a good step"},
    {"fp16.auto_cast", kNoEffect, "inputs are token ids"},
    {"fp16.fp16_master_weights_and_grads", kRefusedIfOn, "master weights and gradients are fp32; leave it out"},
    {"bf16", kBlock, "also as bfloat16"},
    {"bf16.enabled", kUsed, "--bf16; both or neither"},
    {"bf16.immediate_grad_update", kNoEffect, "gradients are always added to fp32 sums as they are computed"},
    {"bf16.check_grad_overflow", kNoEffect, "bf16 has the range of fp32, and no loss scale"},
    {"data_types", kBlock, ""},
    {"data_types.grad_accum_dtype", kUsed, "only fp32, in which gradients are always summed"},
    {"zero_optimization", kBlock, ""},
    {"zero_optimization.stage", kUsed, "--zero-stage; 0 with bf16 is read as 1, as DeepSpeed's bf16 optimizer does"},
    {"zero_optimization.allgather_partitions", kNoEffect, kExchangeBuckets},
    {"zero_optimization.allgather_bucket_size", kNoEffect, kExchangeBuckets},
    {"zero_optimization.overlap_comm", kNoEffect, kExchangeBuckets},
    {"zero_optimization.reduce_scatter", kNoEffect, kExchangeBuckets},
    {"zero_optimization.reduce_bucket_size", kNoEffect, kExchangeBuckets},
    {"zero_optimization.contiguous_gradients", kNoEffect, kExchangeBuckets},
    {"zero_optimization.use_multi_rank_bucket_allreduce", kNoEffect, kExchangeBuckets},
    {"zero_optimization.round_robin_gradients", kNoEffect, kExchangeBuckets},
    {"zero_optimization.sub_group_size", kNoEffect, kExchangeBuckets},
    {"zero_optimization.legacy_stage1", kNoEffect, kExchangeBuckets},
    {"zero_optimization.ignore_unused_parameters", kNoEffect, "every parameter is used"},
    {"zero_optimization.load_from_fp32_weights", kNoEffect, "checkpoints hold the fp32 master weights"},
    {"zero_optimization.elastic_checkpoint", kNoEffect, "every checkpoint loads in every layout"},
    {"zero_optimization.memory_efficient_linear", kNoEffect, "linear layers keep only their input"},
    {"zero_optimization.stage3_max_live_parameters", kNoEffect, kGathered},
    {"zero_optimization.stage3_max_reuse_distance", kNoEffect, kGathered},
    {"zero_optimization.stage3_prefetch_bucket_size", kNoEffect, kGathered},
    {"zero_optimization.stage3_param_persistence_threshold", kNoEffect, kGathered},
    {"zero_optimization.stage3_model_persistence_threshold", kNoEffect, kGathered},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", kNoEffect, "checkpoints hold whole tensors"},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", kNoEffect, "checkpoints hold whole tensors"},
    {"zero_optimization.zero_hpz_partition_size", kNoEffect, kGathered},
    {"zero_optimization.mics_shard_size", kNoEffect, kGathered},
    {"zero_optimization.mics_hierarchical_params_gather", kNoEffect, kGathered},
    {"zero_optimization.zero_quantized_weights", kRefusedIfOn, kQuantized},
    {"zero_optimization.zero_quantized_nontrainable_weights", kRefusedIfOn, kQuantized},
    {"zero_optimization.zero_quantized_gradients", kRefusedIfOn, kQuantized},
    {"zero_optimization.offload_optimizer", kRefusedIfOn, kOffload},
    {"zero_optimization.offload_param", kRefusedIfOn, kOffload},
    {"zero_optimization.cpu_offload", kRefusedIfOn, kOffload},
    {"zero_optimization.cpu_offload_params", kRefusedIfOn, kOffload},
    {"zero_optimization.cpu_offload_use_pin_memory", kNoEffect, "offload is not built in"},
    {"optimizer", kBlock, ""},
    {"optimizer.type", kUsed, "only Adam and AdamW"},
    {"optimizer.legacy_fusion", kNoEffect, "kernels are always fused"},
    {"optimizer.params", kBlock, ""},
    {"optimizer.params.lr", kUsed, "--lr"},
    {"optimizer.params.betas", kUsed, "--adam-beta1, --adam-beta2"},
    {"optimizer.params.eps", kUsed, "--adam-eps"},
    {"optimizer.params.weight_decay", kUsed, "--weight-decay"},
    {"optimizer.params.adam_w_mode", kOnlyTrue, "weight decay is decoupled"},
    {"optimizer.params.bias_correction", kOnlyTrue, "Adam's moments are always corrected"},
    {"optimizer.params.amsgrad", kRefusedIfOn, "AMSGrad is not built in; leave it out"},
    {"optimizer.params.torch_adam", kNoEffect, "it names one of several equal implementations"},
    {"scheduler", kRefused, "use --lr-decay-style, --lr-warmup-samples, --lr-decay-samples and --min-lr"},
    {"activation_checkpointing", kBlock, ""},
    {"activation_checkpointing.partition_activations", kUsed, "--partition-activations"},
    {"activation_checkpointing.cpu_checkpointing", kNoEffect, kRecomputeKeys},
    {"activation_checkpointing.contiguous_memory_optimization", kNoEffect, kRecomputeKeys},
    {"activation_checkpointing.number_checkpoints", kNoEffect, kRecomputeKeys},
    {"activation_checkpointing.synchronize_checkpoint_boundary", kNoEffect, kRecomputeKeys},
    {"activation_checkpointing.profile", kNoEffect, kRecomputeKeys},
    {"steps_per_print", kNoEffect, "use --log-interval"},
    {"wall_clock_breakdown", kNoEffect, "times are in metrics.jsonl; use --profile-step-start for a trace"},
    {"memory_breakdown", kNoEffect, "use `espalier plan`"},
    {"dump_state", kNoEffect, "the options of a run are in config.toml of its --save folder"},
    {"comms_logger", kNoEffect, "use --profile-step-start"},
    {"flops_profiler", kNoEffect, "use --profile-step-start"},
    {"tensorboard", kNoEffect, kMonitor},
    {"csv_monitor", kNoEffect, kMonitor},
    {"wandb", kRefusedIfOn, "send metrics.jsonl of the --save folder to W&B from outside; leave it out"},
    {"comet", kRefusedIfOn, "send metrics.jsonl of the --save folder there from outside; leave it out"},
    {"checkpoint", kNoEffect, "every checkpoint loads in every layout"},
    {"elastic_checkpoint", kNoEffect, "every checkpoint loads in every layout"},
    {"prescale_gradients", kNoEffect, kSummed},
    {"gradient_predivide_factor", kNoEffect, kSummed},
    {"disable_allgather", kNoEffect, kExchangeBuckets},
    {"sparse_gradients", kRefusedIfOn, "gradients are dense; leave it out"},
    {"zero_allow_untested_optimizer", kNoEffect, "every optimizer works with every stage"},
    {"zero_force_ds_cpu_optimizer", kNoEffect, "the optimizer runs where the parameters are"},
    {"aio", kNoEffect, "nothing is offloaded to disks"},
    {"amp", kRefusedIfOn, "use --bf16 or --fp16"},
    {"curriculum_learning", kRefusedIfOn, "the sequence length is constant; leave it out"},
    {"data_efficiency", kRefusedIfOn, "samples are neither chosen nor shortened; leave it out"},
    {"progressive_layer_drop", kRefusedIfOn, "layers are never dropped; leave it out"},
    {"eigenvalue", kRefusedIfOn, "it belongs to quantized training; leave it out"},
    {"quantize_training", kRefusedIfOn, "quantized training is not built in; leave it out"},
    {"compression_training", kRefused, "compression is not built in; leave it out"},
    {"sparse_attention", kRefused, "attention is dense; leave it out"},
    {"elasticity", kRefusedIfOn, "the batch does not follow the number of processes; leave it out"},
    {"autotuning", kRefusedIfOn, "use `espalier plan`"},
    {"pipeline", kRefused, "use --pp-partition-method and --pipeline-model-parallel-size"},
    {"tensor_parallel", kRefused, "use --tensor-model-parallel-size"},
    {"sequence_parallel_size", kRefused, "use --context-parallel-size"},
    {"hybrid_engine", kRefusedIfOn, "use `espalier generate` on a checkpoint"},
};

std::string parent_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot + 1);
}

std::string effect_text(const DeepSpeedKey& key) {
  const std::string note = key.note;
  switch (key.effect) {
    case kUsed: return note;
    case kBlock: return note.empty() ? "the keys below" : "the keys below; " + note;
    case kNoEffect: return "*no effect*: " + note;
    case kRefused: return "*not supported*: " + note;
    case kRefusedIfOn: return "*not supported* where it is on: " + note;
    case kOnlyTrue: return "*only true*: " + note;
  }
  return "";
}

}  // namespace

const std::vector<DeepSpeedKey>& deepspeed_keys() { return kKeys; }

const DeepSpeedKey* find_deepspeed_key(const std::string& path) {
  for (const DeepSpeedKey& key : kKeys)
    if (path == key.path) return &key;
  return nullptr;
}

std::vector<std::string> deepspeed_keys_beside(const std::string& path) {
  const std::string parent = parent_of(path);
  std::vector<std::string> names;
  for (const DeepSpeedKey& key : kKeys)
    if (parent_of(key.path) == parent) names.push_back(std::string(key.path).substr(parent.size()));
  return names;
}

}  // namespace internal

std::string deepspeed_keys_markdown() {
  std::string text = "| key | here |\n|---|---|\n";
  for (const internal::DeepSpeedKey& key : internal::deepspeed_keys())
    text += concat("| `", key.path, "` | ", internal::effect_text(key), " |\n");
  return text;
}

}  // namespace espalier::config
