#include "optim/optimizer.h"

#include <ATen/ATen.h>

#include <cmath>

#include "base/error.h"
#include "kernels/adam.h"

namespace espalier::optim {
namespace {
constexpr double kClipEpsilon = 1e-6;  // Megatron's clip_grads.py
}

Optimizer::Optimizer(tensor::ParamSet& params, const OptimizerConfig& config)
    : params_(params), config_(config), master_is_value_(params.compute_type() == at::kFloat) {
  if (config.loss_scale) loss_scale_.emplace(*config.loss_scale);
  const auto fp32 = at::TensorOptions().dtype(at::kFloat);
  for (tensor::Param& param : params_.params()) {
    const auto& shape = param.spec->shape;
    states_.push_back({&param, master_is_value_ ? param.value : at::zeros(shape, fp32), at::zeros(shape, fp32),
                       at::zeros(shape, fp32)});
  }
}

void Optimizer::set_master(const tensor::Param& param, const at::Tensor& fp32) {
  for (State& state : states_)
    if (state.param == &param) {
      state.master.copy_(fp32);
      return;
    }
  ESPALIER_CHECK(false, param.spec->name, " is not a parameter of this optimizer");
}

void Optimizer::publish() {
  if (master_is_value_) return;
  for (State& state : states_) state.param->value.copy_(state.master);
}

StepResult Optimizer::step(double lr, double grad_factor) {
  StepResult result{.lr = lr};
  double grad_scale = grad_factor / loss_scale();
  if (loss_scale_) {
    bool overflow = false;
    for (const State& state : states_) overflow = overflow || !kernels::all_finite(state.param->grad);
    loss_scale_->update(overflow);
    if (overflow) {
      result.skipped = true;
      return result;
    }
  }
  if (config_.clip_grad > 0) {
    double sum = 0;
    for (const State& state : states_) sum += kernels::sum_of_squares(state.param->grad);
    result.grad_norm = std::sqrt(sum) * std::abs(grad_scale);
    if (!std::isfinite(*result.grad_norm)) {
      result.skipped = true;
      return result;
    }
    const double clip = config_.clip_grad / (*result.grad_norm + kClipEpsilon);
    if (clip < 1) grad_scale *= clip;
  }
  if (config_.count_zeros) {
    result.num_zeros = 0;
    for (const State& state : states_) *result.num_zeros += kernels::count_zeros(state.param->grad);
  }
  update(lr, grad_scale);
  return result;
}

void Optimizer::update(double lr, double grad_scale) {
  ++num_steps_;
  kernels::AdamStep step{.lr = lr,
                         .beta1 = config_.beta1,
                         .beta2 = config_.beta2,
                         .epsilon = config_.epsilon,
                         .weight_decay = 0,
                         .step = num_steps_,
                         .grad_scale = grad_scale};
  for (State& state : states_) {
    step.weight_decay = state.param->spec->weight_decay ? config_.weight_decay : 0;
    kernels::adam_step(state.master, state.exp_avg, state.exp_avg_sq, state.param->grad, state.param->value, step);
  }
}

double Optimizer::params_norm() const {
  double sum = 0;
  for (const State& state : states_) sum += kernels::sum_of_squares(state.master);
  return std::sqrt(sum);
}

void Optimizer::visit_state(
    const std::function<void(const tensor::Param&, const std::string& kind, at::Tensor&)>& visit) {
  for (State& state : states_) {
    if (!master_is_value_) visit(*state.param, "master", state.master);
    visit(*state.param, "exp_avg", state.exp_avg);
    visit(*state.param, "exp_avg_sq", state.exp_avg_sq);
  }
}

}  // namespace espalier::optim
