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
  optim::OptimizerConfig to{.settings = from,
                            .clip_grad = from.clip_grad,
                            .measure_norm = config.training.skip_step_sigma > 0,
                            .count_zeros = config.logging.log_num_zeros_in_grad,
                            .exact_norms = config.parallel.canonical_reduction,
                            .evaluate_ema = config.data.eval_ema && from.ema > 0,
                            .seed = static_cast<uint64_t>(config.training.seed),
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
          .zero = static_cast<dist::ZeroStage>(config.zero_stage),
          .canonical = config.canonical_reduction};
}

}  // namespace espalier::train
