// The optimizer: fp32 master weights and moments, global-norm clip, overflow check.
//
// One step: gradients (fp32 sums, multiplied by the loss scale and by 1/nominal tokens) -> norm -> clip -> AdamW on the
// master weights -> rounded weights for the next forward pass. Clipping follows Megatron: the factor is
// max_norm / (norm + 1e-6), used when below 1.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "optim/loss_scale.h"
#include "tensor/param_set.h"

namespace espalier::optim {

struct OptimizerConfig {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;
  double clip_grad = 1.0;  // 0: no clipping, and no norm is reported
  bool count_zeros = false;
  std::optional<LossScaleConfig> loss_scale;  // fp16 only
};

struct StepResult {
  std::optional<double> grad_norm;  // of the whole gradient, before clipping
  std::optional<int64_t> num_zeros;
  bool skipped = false;  // overflow, or a norm that is not finite: nothing was updated
  double lr = 0;
};

class Optimizer {
 public:
  // `params` outlives the optimizer. Master weights start as zeros: fill them through set_master or restore.
  Optimizer(tensor::ParamSet& params, const OptimizerConfig& config);

  // Gives a parameter its fp32 value; the compute value is rounded from it by the caller or by publish().
  void set_master(const tensor::Param& param, const at::Tensor& fp32);
  // Rounds every master weight into its parameter's value.
  void publish();

  // `grad_factor`: what the accumulated gradients still have to be multiplied by, apart from the loss scale
  // (nominal / actual number of tokens).
  StepResult step(double lr, double grad_factor);

  // sqrt of the sum of squares of all master weights.
  double params_norm() const;

  double loss_scale() const { return loss_scale_ ? loss_scale_->scale() : 1.0; }
  LossScale* loss_scaler() { return loss_scale_ ? &*loss_scale_ : nullptr; }
  int64_t num_steps() const { return num_steps_; }
  void set_num_steps(int64_t steps) { num_steps_ = steps; }

  // "master", "exp_avg" and "exp_avg_sq" of every parameter, fp32. Under fp32 training the master is the value itself
  // and is not visited.
  void visit_state(const std::function<void(const tensor::Param&, const std::string& kind, at::Tensor&)>& visit);

 private:
  struct State {
    tensor::Param* param;
    at::Tensor master, exp_avg, exp_avg_sq;
  };
  void update(double lr, double grad_scale);

  tensor::ParamSet& params_;
  OptimizerConfig config_;
  bool master_is_value_;
  std::vector<State> states_;
  std::optional<LossScale> loss_scale_;
  int64_t num_steps_ = 0;
};

}  // namespace espalier::optim
