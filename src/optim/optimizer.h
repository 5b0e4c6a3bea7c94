// The optimizer: fp32 master weights and its state, global-norm clip, overflow check.
//
// On many ranks each updates the pieces of parameters that it owns (ZeRO; all of them without it) and then gives the
// new values to the others. The norm counts every element of the model once: what is replicated over tensor ranks on
// the first of them, a copy of a tied parameter never. It is the same to the last bit on every rank, as are the
// decisions to clip and to skip.
//
// One step: gradients (fp32 sums, multiplied by the loss scale and by 1/nominal tokens) -> norm -> clip -> update of
// the master weights (spec/optimizers/) -> rounded weights for the next forward pass. Clipping follows Megatron: the
// factor is max_norm / (norm + 1e-6), used when below 1.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dist/grid.h"
#include "dist/reduce.h"
#include "kernels/optimizer_update.h"
#include "optim/loss_scale.h"
#include "optim/matrix_directions.h"
#include "optim/qk_clip.h"
#include "spec/optimizer.h"
#include "tensor/param_set.h"

namespace espalier::optim {

struct OptimizerConfig {
  spec::OptimizerSettings settings;
  double clip_grad = 1.0;  // 0: no clipping, and no norm is reported unless it is asked for
  bool measure_norm = false;
  bool count_zeros = false;
  bool exact_norms = false;                   // the same bits whatever ranks own what (kernels/exact_squares.h)
  bool evaluate_ema = false;                  // settings.ema > 0: use_mean() takes the moving average
  uint64_t seed = 0;                          // of the rounding of states that are not fp32
  std::optional<LossScaleConfig> loss_scale;  // fp16 only
};

struct StepResult {
  std::optional<double> grad_norm;  // of the whole gradient, before clipping
  std::optional<int64_t> num_zeros;
  bool skipped = false;  // overflow, a norm that is not finite, or not allowed: nothing was updated
  double lr = 0;
  std::optional<double> max_logit;  // of all heads, where queries and keys are clipped
};

// State of elements [begin, end) of a parameter's local tensor.
struct StatePiece {
  const tensor::Param* param = nullptr;
  std::string kind;   // "master", or the name of a spec::StateTensor
  at::Tensor values;  // the parameter's shape where it is whole, else [end - begin]; of stored_shape()
  spec::StateType type = spec::StateType::kFp32;
  spec::StateTensor::Moment moment = spec::StateTensor::Moment::kNone;
  int64_t begin = 0, end = 0;
};

// Of the tensor that holds it.
at::ScalarType scalar_type_of(spec::StateType type);

class Optimizer {
 public:
  // `params` and `reducer` outlive the optimizer. Without a reducer it updates all of `params` and takes their
  // gradients as they are. Master weights start as zeros: fill them through set_master or visit_state.
  // `logits`: those of the step, by which queries and keys are clipped (optim/qk_clip.h); null: they are not.
  Optimizer(tensor::ParamSet& params, const OptimizerConfig& config, const dist::Grid& grid = dist::single_process(),
            dist::GradReducer* reducer = nullptr, tensor::LogitMaxima* logits = nullptr);

  // `act` is called before anything that visit_state() shows changes, or a value of params: what still reads them can
  // stop to. Whoever writes to them in another way has to see to that.
  void before_change(std::function<void()> act) { before_change_ = std::move(act); }

  // Gives a parameter its fp32 value (all of its local tensor), of which the optimizer keeps and rounds what it owns.
  void set_master(const tensor::Param& param, const at::Tensor& fp32);
  // Rounds every master weight into its parameter's value, on all ranks; of optimizers that average, the weights at
  // which gradients are taken. Called by all of them.
  void publish();
  // Where the optimizer averages (spec::OptimizerKind) or the moving average is to be evaluated, gives all ranks the
  // mean to evaluate with, or takes it back. Called by all of them; nothing happens elsewhere. State is not to be
  // looked at between the two: in fp32 the average and the weights change places.
  void use_mean(bool use);
  // What a checkpoint holds as the value of a piece of the reducer: of optimizers that average, the mean.
  at::Tensor value_to_save(size_t piece) const;

  // `grad_factor`: what the accumulated gradients still have to be multiplied by, apart from the loss scale
  // (nominal / actual number of tokens). `allows`: whether an update of that norm may be made, asked where nothing else
  // is against it, alike on all ranks. Called by all ranks.
  StepResult step(double lr, double grad_factor, const std::function<bool(double grad_norm)>& allows = {});

  // Whether an estimate of the curvature belongs before the next update (spec::OptimizerKind::estimates_curvature).
  bool wants_curvature() const;
  // Takes the accumulated gradients as those of a loss whose `num_drawn` labels were drawn from the model's own
  // predictions, at the present weights, which stay; `grad_factor` as above. False: they are not finite, and nothing
  // has changed. Called by all ranks.
  bool update_curvature(double num_drawn, double grad_factor);

  // From the next step on.
  void set_weight_decay(double weight_decay) { config_.settings.weight_decay = weight_decay; }

  // sqrt of the sum of squares of all master weights of the model. Called by all ranks.
  double params_norm() const;

  double loss_scale() const { return loss_scale_ ? loss_scale_->scale() : 1.0; }
  LossScale* loss_scaler() { return loss_scale_ ? &*loss_scale_ : nullptr; }
  int64_t num_steps() const { return num_steps_; }
  void set_num_steps(int64_t steps) { num_steps_ = steps; }

  const spec::OptimizerKind& kind() const { return kind_; }
  // The mean of optimizers that average: the largest learning rate so far, and the sum of the squares that those were.
  struct MeanState {
    double largest_lr = 0, weight = 0;
  };
  const MeanState& mean_state() const { return mean_; }
  void set_mean_state(const MeanState& mean) { mean_ = mean; }

  // Lets the moving average begin as the weights are now.
  void begin_ema();

  // State that this rank owns, by parameter. A master that is the value itself (fp32, no mean) is not
  // visited.
  void visit_state(const std::function<void(const StatePiece&)>& visit);

 private:
  struct State {
    dist::OwnedPiece piece;
    const spec::OptimizerKind* kind = nullptr;  // that updates it
    spec::OptimizerKind::ByWidth by_width;
    at::Tensor master;
    std::vector<at::Tensor> states;  // in the order of kind->states
    std::vector<spec::StateType> types;
    kernels::StateRounding rounding;  // where one of them is not fp32
    at::Tensor ema;                   // undefined where none is kept
    bool counts = false;              // in norms of the whole model
  };
  // Of the gradient as accumulated.
  struct Measures {
    double num_not_finite = 0, sum_of_squares = 0, num_zeros = 0;
  };
  void note_change() const {
    if (before_change_) before_change_();
  }
  State state_of(const dist::OwnedPiece& piece) const;
  bool measures_norm() const { return config_.clip_grad > 0 || config_.measure_norm; }
  Measures measure() const;
  std::vector<double> sum_over_model(std::vector<double> values) const;
  // Returns the largest logit, where there are any.
  std::optional<double> update(double lr, double grad_scale);
  // Of every element: `step` without what differs between parameters.
  void pass_over(spec::OptimizerStep step);
  void move_emas();
  double clip_logits();
  void multiply(const RowFactor& by);
  void write_values();
  double next_share(double lr);
  std::vector<double> norm_ratios() const;
  void make_directions();
  void move_by_norms(double lr);
  void move_by_matrices(double lr);
  // How a master moves by the direction in its gradient; none: it stays.
  struct Move {
    double lr, weight_decay;
  };
  void move(const std::function<std::optional<Move>(const State&)>& how);

  tensor::ParamSet& params_;
  OptimizerConfig config_;
  const spec::OptimizerKind& kind_;
  dist::Grid grid_;
  dist::GradReducer* reducer_;
  tensor::LogitMaxima* logits_;
  bool master_is_value_;
  std::function<void()> before_change_;
  std::vector<State> states_;
  std::unique_ptr<MatrixDirections> directions_;  // Muon's
  std::optional<LossScale> loss_scale_;
  int64_t num_steps_ = 0;
  MeanState mean_;
};

}  // namespace espalier::optim
