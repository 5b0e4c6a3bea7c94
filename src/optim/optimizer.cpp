#include "optim/optimizer.h"

#include <ATen/ATen.h>

#include <cmath>

#include "base/error.h"
#include "kernels/optimizer_update.h"

namespace espalier::optim {
namespace {
constexpr double kClipEpsilon = 1e-6;  // Megatron's clip_grads.py

bool counts_here(const spec::ParamSpec& spec, const dist::Grid& grid) {
  const bool replicated = spec.tensor_placement.kind == spec::Placement::Kind::kReplicated;
  return !spec.is_copy && (!replicated || grid.position.tensor == 0);
}

// Elements [begin, end) in the shape that the piece has.
at::Tensor part_of(const at::Tensor& whole, const dist::OwnedPiece& piece) {
  return whole.reshape({-1}).narrow(0, piece.begin, piece.end - piece.begin).view(piece.value.sizes());
}
}  // namespace

Optimizer::Optimizer(tensor::ParamSet& params, const OptimizerConfig& config, const dist::Grid& grid,
                     dist::GradReducer* reducer)
    : config_(config),
      kind_(spec::optimizer_kind(config.settings)),
      grid_(grid),
      reducer_(reducer),
      master_is_value_(params.compute_type() == at::kFloat) {
  if (config.loss_scale) loss_scale_.emplace(*config.loss_scale);
  const auto fp32 = at::TensorOptions().dtype(at::kFloat).device(params.device());
  for (const dist::OwnedPiece& piece : reducer_ != nullptr ? reducer_->pieces() : dist::whole_pieces(params)) {
    const auto shape = piece.value.sizes();
    std::vector<at::Tensor> states;
    for (size_t state = 0; state < kind_.states.size(); ++state) states.push_back(at::zeros(shape, fp32));
    states_.push_back({piece, master_is_value_ ? piece.value : at::zeros(shape, fp32), std::move(states),
                       counts_here(*piece.param->spec, grid)});
  }
}

void Optimizer::set_master(const tensor::Param& param, const at::Tensor& fp32) {
  for (State& state : states_) {
    if (state.piece.param != &param) continue;
    state.master.copy_(part_of(fp32, state.piece));
    if (!master_is_value_) state.piece.value.copy_(state.master);
  }
}

void Optimizer::publish() {
  if (!master_is_value_)
    for (State& state : states_) state.piece.value.copy_(state.master);
  if (reducer_ != nullptr) reducer_->gather_values();
}

// In double, in the order of ranks: the same bits everywhere.
std::vector<double> Optimizer::sum_over_model(std::vector<double> values) const {
  if (reducer_ != nullptr && reducer_->is_sharded()) values = grid_.gradient.sum(values);
  return grid_.model.sum(values);
}

Optimizer::Measures Optimizer::measure() const {
  Measures own;
  for (const State& state : states_) {
    const at::Tensor& grad = state.piece.grad;
    if (loss_scale_ && !kernels::all_finite(grad)) ++own.num_not_finite;
    if (!state.counts) continue;
    if (config_.clip_grad > 0) own.sum_of_squares += kernels::sum_of_squares(grad);
    if (config_.count_zeros) own.num_zeros += static_cast<double>(kernels::count_zeros(grad));
  }
  if (!loss_scale_ && config_.clip_grad <= 0 && !config_.count_zeros) return own;
  const std::vector<double> all = sum_over_model({own.num_not_finite, own.sum_of_squares, own.num_zeros});
  return {all[0], all[1], all[2]};
}

StepResult Optimizer::step(double lr, double grad_factor) {
  StepResult result{.lr = lr};
  double grad_scale = grad_factor / loss_scale();
  const Measures measures = measure();
  if (loss_scale_) {
    loss_scale_->update(measures.num_not_finite > 0);
    if (measures.num_not_finite > 0) {
      result.skipped = true;
      return result;
    }
  }
  if (config_.clip_grad > 0) {
    result.grad_norm = std::sqrt(measures.sum_of_squares) * std::abs(grad_scale);
    if (!std::isfinite(*result.grad_norm)) {
      result.skipped = true;
      return result;
    }
    const double clip = config_.clip_grad / (*result.grad_norm + kClipEpsilon);
    if (clip < 1) grad_scale *= clip;
  }
  if (config_.count_zeros) result.num_zeros = static_cast<int64_t>(measures.num_zeros);
  update(lr, grad_scale);
  if (reducer_ != nullptr) reducer_->gather_values();
  return result;
}

void Optimizer::update(double lr, double grad_scale) {
  ++num_steps_;
  spec::OptimizerStep step{.lr = lr, .weight_decay = 0, .number = num_steps_, .grad_scale = grad_scale};
  for (State& state : states_) {
    const dist::OwnedPiece& piece = state.piece;
    step.weight_decay = piece.param->spec->weight_decay ? config_.settings.weight_decay : 0;
    kernels::optimizer_update(kind_, {state.master, state.states, piece.grad, piece.value},
                              kind_.constants(config_.settings, step));
  }
}

double Optimizer::params_norm() const {
  double sum = 0;
  for (const State& state : states_)
    if (state.counts) sum += kernels::sum_of_squares(state.master);
  return std::sqrt(sum_over_model({sum})[0]);
}

void Optimizer::visit_state(const std::function<void(const StatePiece&)>& visit) {
  for (State& state : states_) {
    const auto show = [&](const char* kind, const at::Tensor& values) {
      visit({state.piece.param, kind, values, state.piece.begin, state.piece.end});
    };
    if (!master_is_value_) show("master", state.master);
    for (size_t at = 0; at < kind_.states.size(); ++at) show(kind_.states[at].name, state.states[at]);
  }
}

}  // namespace espalier::optim
