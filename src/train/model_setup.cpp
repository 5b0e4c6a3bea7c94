#include "train/model_setup.h"

#include "base/error.h"

namespace espalier::train {

at::ScalarType compute_type(plan::Precision precision) {
  switch (precision) {
    case plan::Precision::kFp32: return at::kFloat;
    case plan::Precision::kBf16: return at::kBFloat16;
    case plan::Precision::kFp16: return at::kHalf;
  }
  ESPALIER_CHECK(false, "unknown precision");
  return at::kFloat;
}

optim::OptimizerConfig optimizer_config(const config::RunConfig& config) {
  const config::OptimizerConfig& from = config.optimizer;
  optim::OptimizerConfig to{.beta1 = from.adam_beta1,
                            .beta2 = from.adam_beta2,
                            .epsilon = from.adam_eps,
                            .weight_decay = from.weight_decay,
                            .clip_grad = from.clip_grad,
                            .count_zeros = config.logging.log_num_zeros_in_grad,
                            .loss_scale = {}};
  if (config.training.precision == plan::Precision::kFp16) {
    const bool constant = from.loss_scale.value_or(0) != 0;
    to.loss_scale = {.initial = constant ? *from.loss_scale : from.initial_loss_scale,
                     .minimum = from.min_loss_scale,
                     .window = static_cast<int64_t>(from.loss_scale_window),
                     .hysteresis = from.hysteresis,
                     .dynamic = !constant};
  }
  return to;
}

dist::ReduceOptions reduce_options(const config::ParallelConfig& config) {
  return {.sequence_parallel = config.sequence_parallel,
          .type = config.grad_reduce_type == plan::GradReduceType::kBf16 ? at::kBFloat16 : at::kFloat,
          .zero = static_cast<dist::ZeroStage>(config.zero_stage)};
}

pipeline::RecomputePlan recompute_plan(const plan::Recompute& recompute) {
  using Method = pipeline::RecomputePlan::Method;
  switch (recompute.kind) {
    case plan::Recompute::Kind::kNone: return {Method::kNone, 1};
    case plan::Recompute::Kind::kUniform: return {Method::kUniform, recompute.num_layers};
    case plan::Recompute::Kind::kBlock: return {Method::kBlock, recompute.num_layers};
  }
  ESPALIER_CHECK(false, "unknown recompute method");
  return {};
}

text::TokenizerOptions tokenizer_options(const config::TokenizerConfig& config) {
  return text::tokenizer_options_of(config);
}

data::DataSetOptions data_set_options(const config::RunConfig& config) {
  const config::DataConfig& from = config.data;
  data::DataSetOptions to;
  to.data_path = from.data_path;
  to.data_file_list = from.data_file_list;
  to.train_data_path = from.train_data_path;
  to.valid_data_path = from.valid_data_path;
  to.test_data_path = from.test_data_path;
  to.split = from.split;
  to.train_weighted_split_paths = from.train_weighted_split_paths;
  to.valid_weighted_split_paths = from.valid_weighted_split_paths;
  to.test_weighted_split_paths = from.test_weighted_split_paths;
  to.train_weighted_split_paths_path = from.train_weighted_split_paths_path;
  to.valid_weighted_split_paths_path = from.valid_weighted_split_paths_path;
  to.test_weighted_split_paths_path = from.test_weighted_split_paths_path;
  to.data_impl = from.data_impl;
  to.sequence_length = from.sequence_length;
  to.seed = config.training.seed;
  to.cache_path = from.data_cache_path;
  const int64_t per_evaluation = from.eval_iters * *config.training.global_batch_size;
  to.train_samples = config.training.num_samples;
  to.valid_samples = (config.training.scheduled_steps / from.eval_interval + 1) * per_evaluation;
  to.test_samples = per_evaluation;
  return to;
}

MaskOptions mask_options(const config::DataConfig& config, const text::Tokenizer& tokenizer) {
  MaskOptions masks{.eod = {},
                    .reset_position_ids = config.reset_position_ids,
                    .reset_attention_mask = config.reset_attention_mask,
                    .eod_mask_loss = config.eod_mask_loss};
  if (!masks.reset_position_ids && !masks.reset_attention_mask && !masks.eod_mask_loss) return masks;
  masks.eod = tokenizer.eod();
  if (!masks.eod)
    throw UserError(
        concat("--reset-position-ids, --reset-attention-mask and --eod-mask-loss need an end-of-document token, and ",
               tokenizer.description(), " has none. Leave them out, or give the tokenizer an EOS token."),
        ExitCode::kUsage);
  return masks;
}

}  // namespace espalier::train
