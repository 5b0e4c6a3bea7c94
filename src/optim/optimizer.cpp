#include "optim/optimizer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/work_profile.h"
#include "kernels/exact_squares.h"
#include "kernels/optimizer_update.h"
#include "spec/state_storage.h"

namespace espalier::optim {

at::ScalarType scalar_type_of(spec::StateType type) {
  switch (type) {
    case spec::StateType::kFp32: return at::kFloat;
    case spec::StateType::kBf16: return at::kBFloat16;
    case spec::StateType::kFp8: return at::kByte;
  }
  ESPALIER_CHECK(false, "unknown type of a state");
  return at::kFloat;
}

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

void exchange(at::Tensor& a, at::Tensor& b) {
  const at::Tensor before = a.clone();
  a.copy_(b);
  b.copy_(before);
}

// What a parameter of several stages has on one of them is meant for all; where it is a copy there are zeros.
void add_up_shared(const dist::Grid::Shared& shared, tensor::ParamSet& params, size_t num_numbers,
                   std::vector<double>& squares) {
  std::map<std::string, size_t> places;  // in the same order on all stages
  for (const tensor::Param& param : params.params())
    if (param.spec->stages == shared.stages)
      places[param.spec->name] = num_numbers * static_cast<size_t>(params.index_of(param));
  std::vector<double> values;
  for (const auto& [name, at] : places)
    for (size_t number = 0; number < num_numbers; ++number) values.push_back(squares[at + number]);
  values = shared.group.sum(values);
  auto value = values.begin();
  for (const auto& [name, at] : places)
    for (size_t number = 0; number < num_numbers; ++number) squares[at + number] = *value++;
}

// A sum of squares as numbers that may be added: one, or those of an exact sum.
class Squares {
 public:
  explicit Squares(bool exact) : exact_(exact) {}
  static size_t num_numbers(bool exact) { return exact ? kernels::ExactSquares::kNumNumbers : 1; }
  static double value(bool exact, const double* numbers) {
    return exact ? kernels::ExactSquares::value(numbers) : *numbers;
  }
  // `measured`: of the same values, where sums are not exact.
  void add(const at::Tensor& values, const kernels::Measured& measured) {
    if (exact_)
      sum_.add(values);
    else
      rounded_ += measured.sum_of_squares;
  }
  std::vector<double> numbers() const { return exact_ ? sum_.numbers() : std::vector<double>{rounded_}; }

 private:
  bool exact_;
  double rounded_ = 0;
  kernels::ExactSquares sum_;
};
}  // namespace

Optimizer::Optimizer(tensor::ParamSet& params, const OptimizerConfig& config, const dist::Grid& grid,
                     dist::GradReducer* reducer, tensor::LogitMaxima* logits)
    : params_(params),
      config_(config),
      kind_(spec::optimizer_kind(config.settings)),
      grid_(grid),
      reducer_(reducer),
      logits_(logits),
      master_is_value_(params.compute_type() == at::kFloat && !kind_.averages) {
  ESPALIER_CHECK(!config.evaluate_ema || (kind_.keeps_ema && !kind_.averages), "no moving average to evaluate");
  if (config.loss_scale) loss_scale_.emplace(*config.loss_scale);
  for (const dist::OwnedPiece& piece : reducer_ != nullptr ? reducer_->pieces() : dist::whole_pieces(params))
    states_.push_back(state_of(piece));
  if (kind_.second_pass == spec::SecondPass::kOrthogonalize) make_directions();
}

Optimizer::State Optimizer::state_of(const dist::OwnedPiece& piece) const {
  const auto options = at::TensorOptions().device(params_.device());
  const auto fp32 = options.dtype(at::kFloat);
  const spec::ParamSpec& spec = *piece.param->spec;
  const auto shape = piece.value.sizes();
  State state{.piece = piece,
              .kind = &kind_.of(spec),
              .by_width = {},
              .master = master_is_value_ ? piece.value : at::zeros(shape, fp32),
              .states = {},
              .types = {},
              .rounding = {},
              .ema = kind_.keeps_ema ? at::zeros(shape, fp32) : at::Tensor(),
              .counts = counts_here(spec, grid_)};
  state.by_width = state.kind->by_width(spec);
  for (const spec::StateTensor& one : state.kind->states) {
    const spec::StateType type = spec::stored_type(one, spec);
    state.types.push_back(type);
    state.states.push_back(at::zeros(spec::stored_shape(type, shape.vec()), options.dtype(scalar_type_of(type))));
    if (type == spec::StateType::kFp32 || state.rounding.runs.defined()) continue;
    const std::vector<spec::Extent> held = spec::local_extents(spec, params_.shard());
    state.rounding = {
        .key = tensor::philox_key(config_.seed, ("moments/" + spec.name).c_str()),
        .step = 0,
        .runs = kernels::runs_tensor(spec::clip_to_local(held, piece.begin, piece.end), params_.device())};
  }
  return state;
}

void Optimizer::set_master(const tensor::Param& param, const at::Tensor& fp32) {
  note_change();
  for (State& state : states_) {
    if (state.piece.param != &param) continue;
    state.master.copy_(part_of(fp32, state.piece));
    for (size_t at = 0; at < state.states.size(); ++at)
      if (state.kind->states[at].start == spec::StateTensor::Start::kWeights) state.states[at].copy_(state.master);
    if (state.ema.defined()) state.ema.copy_(state.master);
    if (!master_is_value_) state.piece.value.copy_(state.master);
  }
}

void Optimizer::publish() {
  note_change();
  write_values();
  if (reducer_ != nullptr) reducer_->gather_values();
}

void Optimizer::use_mean(bool use) {
  const bool of_ema = config_.evaluate_ema;
  if (!kind_.averages && !of_ema) return;
  note_change();
  if (master_is_value_)
    for (State& state : states_) exchange(state.master, state.ema);
  if (!use) return publish();
  if (!master_is_value_)
    for (State& state : states_) state.piece.value.copy_(of_ema ? state.ema : state.master);
  if (reducer_ != nullptr) reducer_->gather_values();
}

void Optimizer::begin_ema() {
  note_change();
  for (State& state : states_)
    if (state.ema.defined()) state.ema.copy_(state.master);
}

at::Tensor Optimizer::value_to_save(size_t piece) const {
  const State& state = states_[piece];
  return kind_.averages ? state.master.to(state.piece.value.scalar_type()) : state.piece.value;
}

// A mean's are those of an update that moves nothing, whatever its gradient: the same arithmetic, to the bit.
void Optimizer::write_values() {
  if (master_is_value_) return;
  const spec::OptimizerConstants still = kind_.constants(config_.settings, {.number = 0, .grad_scale = 0});
  std::vector<kernels::OptimizerUpdate> updates;
  for (State& state : states_) {
    if (kind_.averages)
      updates.push_back({{state.master, state.states, state.master, state.piece.value}, still});
    else
      state.piece.value.copy_(state.master);
  }
  kernels::optimizer_update(kind_, updates);
}

// In double, in the order of ranks: the same bits everywhere.
std::vector<double> Optimizer::sum_over_model(std::vector<double> values) const {
  if (reducer_ != nullptr && reducer_->is_sharded()) values = grid_.gradient.sum(values);
  return grid_.model.sum(values);
}

Optimizer::Measures Optimizer::measure() const {
  Measures own;
  if (!loss_scale_ && !measures_norm() && !config_.count_zeros) return own;
  std::vector<kernels::Measure> wanted;
  for (const State& state : states_)
    wanted.push_back({.values = state.piece.grad,
                      .squares = state.counts && measures_norm() && !config_.exact_norms,
                      .zeros = state.counts && config_.count_zeros,
                      .not_finite = loss_scale_.has_value()});
  const std::vector<kernels::Measured> measured = kernels::measure(wanted);
  Squares squares(config_.exact_norms);
  for (size_t at = 0; at < states_.size(); ++at) {
    if (measured[at].num_not_finite > 0) ++own.num_not_finite;
    if (states_[at].counts && measures_norm()) squares.add(states_[at].piece.grad, measured[at]);
    own.num_zeros += static_cast<double>(measured[at].num_zeros);
  }
  std::vector<double> all = squares.numbers();
  all.insert(all.end(), {own.num_not_finite, own.num_zeros});
  all = sum_over_model(all);
  const auto last = all.end();
  return {.num_not_finite = last[-2],
          .sum_of_squares = Squares::value(config_.exact_norms, all.data()),
          .num_zeros = last[-1]};
}

StepResult Optimizer::step(double lr, double grad_factor, const std::function<bool(double grad_norm)>& allows) {
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
  if (measures_norm()) {
    result.grad_norm = std::sqrt(measures.sum_of_squares) * std::abs(grad_scale);
    if (!std::isfinite(*result.grad_norm) || (allows && !allows(*result.grad_norm))) {
      result.skipped = true;
      return result;
    }
    const double clip = config_.clip_grad / (*result.grad_norm + kClipEpsilon);
    if (config_.clip_grad > 0 && clip < 1) grad_scale *= clip;
  }
  if (config_.count_zeros) result.num_zeros = static_cast<int64_t>(measures.num_zeros);
  result.max_logit = update(lr, grad_scale);
  if (reducer_ != nullptr) reducer_->gather_values();
  return result;
}

std::optional<double> Optimizer::update(double lr, double grad_scale) {
  note_change();
  ++num_steps_;
  pass_over({.lr = lr,
             .weight_decay = 0,
             .number = num_steps_,
             .grad_scale = grad_scale,
             .share = kind_.averages ? next_share(lr) : 0});
  if (kind_.second_pass == spec::SecondPass::kScaleByNorms) move_by_norms(lr);
  if (kind_.second_pass == spec::SecondPass::kOrthogonalize) move_by_matrices(lr);
  std::optional<double> max_logit;
  if (logits_ != nullptr) max_logit = clip_logits();
  if (kind_.keeps_ema) move_emas();
  return max_logit;
}

void Optimizer::pass_over(spec::OptimizerStep step) {
  const double lr = step.lr;
  std::map<const spec::OptimizerKind*, std::vector<kernels::OptimizerUpdate>> updates;
  for (State& state : states_) {
    const dist::OwnedPiece& piece = state.piece;
    step.weight_decay = piece.param->spec->weight_decay ? config_.settings.weight_decay : 0;
    step.lr = lr * state.by_width.lr;
    spec::OptimizerSettings settings = config_.settings;
    settings.adam_eps *= state.by_width.epsilon;
    state.rounding.step = num_steps_;
    updates[state.kind].push_back({{state.master, state.states, piece.grad, piece.value, &state.rounding},
                                   state.kind->constants(settings, step)});
  }
  for (const auto& [kind, of_kind] : updates) kernels::optimizer_update(*kind, of_kind);
}

bool Optimizer::wants_curvature() const {
  return kind_.estimates_curvature && num_steps_ % config_.settings.sophiag_update_interval == 0;
}

bool Optimizer::update_curvature(double num_drawn, double grad_factor) {
  std::vector<kernels::Measure> wanted;
  for (const State& state : states_) wanted.push_back({.values = state.piece.grad, .not_finite = true});
  double num_not_finite = 0;
  for (const kernels::Measured& measured : kernels::measure(wanted))
    num_not_finite += measured.num_not_finite > 0 ? 1 : 0;
  if (num_drawn == 0 || sum_over_model({num_not_finite})[0] > 0) return false;
  note_change();
  pass_over({.number = num_steps_, .grad_scale = grad_factor / loss_scale(), .num_drawn = num_drawn});
  return true;
}

double Optimizer::clip_logits() {
  const QkClip clip = qk_clip(*logits_, config_.settings, grid_);
  for (const RowFactor& by : clip.factors) multiply(by);
  return clip.largest;
}

// What this rank owns of some rows.
void Optimizer::multiply(const RowFactor& by) {
  for (State& state : states_) {
    const dist::OwnedPiece& piece = state.piece;
    if (piece.param != by.param) continue;
    const int64_t columns = by.param->spec->shape.size() > 1 ? by.param->spec->shape.back() : 1;
    const int64_t begin = std::max(piece.begin, by.begin * columns), end = std::min(piece.end, by.end * columns);
    if (begin >= end) continue;
    const auto part = [&](const at::Tensor& values) {
      return values.view({-1}).narrow(0, begin - piece.begin, end - begin);
    };
    part(state.master).mul_(by.factor);
    if (!master_is_value_) part(piece.value).copy_(part(state.master));
  }
}

// ema += (1 - decay) (master - ema): gradient descent whose gradient is -master, with a weight decay of 1.
void Optimizer::move_emas() {
  const spec::OptimizerKind& plain = spec::optimizer_kind(spec::OptimizerType::kPlainSgd);
  const spec::OptimizerConstants towards_master =
      plain.constants(config_.settings, {.lr = 1 - config_.settings.ema, .weight_decay = 1, .grad_scale = -1});
  std::vector<kernels::OptimizerUpdate> updates;
  for (State& state : states_) updates.push_back({{state.ema, {}, state.master, state.ema}, towards_master});
  kernels::optimizer_update(plain, updates);
}

double Optimizer::next_share(double lr) {
  mean_.largest_lr = std::max(mean_.largest_lr, lr);
  const double weight = mean_.largest_lr * mean_.largest_lr;
  mean_.weight += weight;
  return mean_.weight > 0 ? weight / mean_.weight : 0;
}

// Of each parameter's norm to that of the direction in its gradient, over all ranks that hold parts of it; 1 where
// either is zero and for what does not decay. The same bits on all ranks that hold the parameter.
std::vector<double> Optimizer::norm_ratios() const {
  const size_t count = params_.params().size();
  const bool exact = config_.exact_norms;
  const size_t width = Squares::num_numbers(exact);
  std::vector<double> squares(2 * width * count);
  std::vector<size_t> places;  // of the numbers of each measured tensor
  std::vector<kernels::Measure> wanted;
  for (const State& state : states_) {
    const spec::ParamSpec& spec = *state.piece.param->spec;
    const bool replicated = spec.tensor_placement.kind == spec::Placement::Kind::kReplicated;
    if (!spec.weight_decay || spec.is_copy || (replicated && grid_.position.tensor > 0)) continue;
    const size_t at = 2 * width * static_cast<size_t>(params_.index_of(*state.piece.param));
    places.insert(places.end(), {at, at + width});
    for (const at::Tensor& values : {state.master, state.piece.grad})
      wanted.push_back({.values = values, .squares = !exact});
  }
  const std::vector<kernels::Measured> measured = kernels::measure(wanted);
  for (size_t i = 0; i < wanted.size(); ++i) {
    Squares own(exact);
    own.add(wanted[i].values, measured[i]);
    size_t at = places[i];
    for (const double number : own.numbers()) squares[at++] += number;
  }
  if (reducer_ != nullptr && reducer_->is_sharded()) squares = grid_.gradient.sum(squares);
  squares = grid_.tensor.sum(squares);
  for (const dist::Grid::Shared& shared : grid_.shared) add_up_shared(shared, params_, 2 * width, squares);
  std::vector<double> ratios(count, 1.0);
  for (size_t at = 0; at < count; ++at) {
    const double of_master = Squares::value(exact, &squares[2 * width * at]);
    const double of_direction = Squares::value(exact, &squares[2 * width * at + width]);
    if (of_master > 0 && of_direction > 0) ratios[at] = std::sqrt(of_master / of_direction);
  }
  return ratios;
}

void Optimizer::move_by_norms(double lr) {
  const std::vector<double> ratios = norm_ratios();
  move([&](const State& state) -> std::optional<Move> {
    return Move{.lr = lr * ratios[static_cast<size_t>(params_.index_of(*state.piece.param))], .weight_decay = 0};
  });
}

// By the direction in its gradient: plain gradient descent.
void Optimizer::move(const std::function<std::optional<Move>(const State&)>& how) {
  const spec::OptimizerKind& plain = spec::optimizer_kind(spec::OptimizerType::kPlainSgd);
  std::vector<kernels::OptimizerUpdate> updates;
  for (State& state : states_)
    if (const std::optional<Move> by = how(state))
      updates.push_back({{state.master, {}, state.piece.grad, state.piece.value},
                         plain.constants(config_.settings, {.lr = by->lr, .weight_decay = by->weight_decay})});
  kernels::optimizer_update(plain, updates);
}

void Optimizer::make_directions() {
  std::vector<const dist::OwnedPiece*> pieces;
  for (const State& state : states_)
    if (state.kind == &kind_) pieces.push_back(&state.piece);
  directions_ = std::make_unique<MatrixDirections>(params_, pieces, grid_,
                                                   reducer_ != nullptr && reducer_->is_sharded(), config_.settings);
}

void Optimizer::move_by_matrices(double lr) {
  const WorkSpan span(Work::kOptimizer, "directions of matrices");
  directions_->orthogonalize();
  move([&](const State& state) -> std::optional<Move> {
    if (state.kind != &kind_) return {};
    return Move{.lr = lr, .weight_decay = state.piece.param->spec->weight_decay ? config_.settings.weight_decay : 0};
  });
}

double Optimizer::params_norm() const {
  std::vector<kernels::Measure> wanted;
  for (const State& state : states_)
    if (state.counts) wanted.push_back({.values = state.master, .squares = !config_.exact_norms});
  const std::vector<kernels::Measured> measured = kernels::measure(wanted);
  Squares squares(config_.exact_norms);
  for (size_t i = 0; i < wanted.size(); ++i) squares.add(wanted[i].values, measured[i]);
  return std::sqrt(Squares::value(config_.exact_norms, sum_over_model(squares.numbers()).data()));
}

void Optimizer::visit_state(const std::function<void(const StatePiece&)>& visit) {
  for (State& state : states_) {
    StatePiece piece{.param = state.piece.param,
                     .kind = "master",
                     .values = state.master,
                     .begin = state.piece.begin,
                     .end = state.piece.end};
    if (!master_is_value_) visit(piece);
    piece.kind = spec::kEma.name, piece.values = state.ema;
    const StatePiece ema = piece;
    for (size_t at = 0; at < state.states.size(); ++at) {
      const spec::StateTensor& one = state.kind->states[at];
      piece.kind = one.name, piece.values = state.states[at], piece.type = state.types[at], piece.moment = one.moment;
      visit(piece);
    }
    if (state.ema.defined()) visit(ema);
  }
}

}  // namespace espalier::optim
