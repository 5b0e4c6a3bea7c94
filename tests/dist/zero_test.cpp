// The optimizer shared by ranks, in every ZeRO stage, against one process that holds the whole model and is given the
// whole gradient.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <map>

#include "kernels/linear.h"
#include "optim/optimizer.h"
#include "pipeline/recompute.h"
#include "tests/support/split_gradients.h"

namespace espalier::optim {
namespace {

using namespace test;
using dist::run_ranks;

constexpr uint64_t kSeed = 7;
constexpr double kRate = 0.01, kFactor = 0.5;

// One process with the model of a case.
struct Whole {
  Whole(const Case& /*c*/, at::ScalarType type, const OptimizerConfig& config)
      : params(model_specs(), {}, type, true), optimizer(params, config) {
    params.initialize(kSeed, [&](tensor::Param& param, const at::Tensor& fp32) { optimizer.set_master(param, fp32); });
  }

  StepResult step(const Case& c, int64_t step) {
    for (tensor::Param& param : params.params()) {
      float* const grad = param.grad.data_ptr<float>();
      for (int64_t i = 0; i < param.grad.numel(); ++i)
        grad[i] = static_cast<float>(expected_element(c, *param.spec, step, i));
    }
    return optimizer.step(kRate, kFactor);
  }

  tensor::ParamSet params;
  Optimizer optimizer;
};

// This rank's part of the same model.
struct Shared {
  Shared(const Grid& rank_grid, const Case& c, at::ScalarType type, const OptimizerConfig& config)
      : grid(rank_grid),
        params(param_set(grid, c, type)),
        reducer(params, grid, c.options),
        optimizer(params, config, grid, &reducer) {
    params.initialize(kSeed, [&](tensor::Param& param, const at::Tensor& fp32) { optimizer.set_master(param, fp32); });
    optimizer.publish();
  }

  void reduce(const Case& c, int64_t step) {
    reducer.begin_step(c.num_micro_batches);
    run_backward(params, grid, c, step);
    reducer.finish_step();
  }

  const Grid& grid;
  tensor::ParamSet params;
  GradReducer reducer;
  Optimizer optimizer;
};

// Elements [begin, end) of the rank's part of `whole`.
at::Tensor part_of(const at::Tensor& whole, const ParamSpec& spec, const tensor::ParamSet& params, int64_t begin,
                   int64_t end) {
  const at::Tensor flat = whole.reshape({-1}), part = at::zeros({end - begin}, whole.options());
  for (const auto& extent : spec::clip_to_local(spec::local_extents(spec, params.shard()), begin, end))
    part.narrow(0, extent.local_begin, extent.count).copy_(flat.narrow(0, extent.global_begin, extent.count));
  return part;
}

// The first parameter of which this rank holds other bits than the whole; empty if none: pieces, their optimizer state,
// and all values that exist.
std::string difference(Shared& shared, Whole& whole) {
  for (const OwnedPiece& piece : shared.reducer.pieces()) {
    const ParamSpec& spec = *piece.param->spec;
    const at::Tensor expected = part_of(whole.params.at(spec.name).value, spec, shared.params, piece.begin, piece.end);
    if (!at::equal(piece.value.reshape({-1}), expected)) return spec.name;
  }
  for (tensor::Param& param : shared.params.params()) {
    if (!param.value.defined()) continue;
    const at::Tensor& all = whole.params.at(param.spec->name).value;
    if (!at::equal(param.value.reshape({-1}), part_of(all, *param.spec, shared.params, 0, param.value.numel())))
      return "all of " + param.spec->name;
  }
  std::map<std::string, at::Tensor> state;
  whole.optimizer.visit_state([&](const StatePiece& p) { state[p.param->spec->name + "." + p.kind] = p.values; });
  std::string different;
  shared.optimizer.visit_state([&](const StatePiece& p) {
    const std::string name = p.param->spec->name + "." + p.kind;
    if (!at::equal(p.values.reshape({-1}), part_of(state.at(name), *p.param->spec, shared.params, p.begin, p.end)))
      different = name;
  });
  return different;
}

bool near(double actual, double expected) { return std::abs(actual - expected) <= 1e-12 * std::abs(expected); }

std::string check_steps(const Grid& grid, const Case& c, at::ScalarType type) {
  const OptimizerConfig config{.settings = {.weight_decay = 0.1}, .clip_grad = 1.0, .count_zeros = true};
  Whole whole(c, type, config);
  Shared shared(grid, c, type, config);
  std::string norms;
  for (int64_t step = 0; step < 3; ++step) {
    const StepResult expected = whole.step(c, step);
    shared.reduce(c, step);
    const StepResult actual = shared.optimizer.step(kRate, kFactor);
    if (!near(*actual.grad_norm, *expected.grad_norm)) return concat("norm ", *actual.grad_norm);
    if (*actual.num_zeros != *expected.num_zeros) return concat(*actual.num_zeros, " zeros");
    if (const std::string name = difference(shared, whole); !name.empty()) return concat(name, " in step ", step);
    const double norm = shared.optimizer.params_norm();
    if (!near(norm, whole.optimizer.params_norm())) return concat("parameters' norm ", norm);
    norms.append(reinterpret_cast<const char*>(&*actual.grad_norm), sizeof(double));
    norms.append(reinterpret_cast<const char*>(&norm), sizeof(double));
  }
  // The same bits on all ranks.
  for (const std::string& other : grid.world.gather_texts(norms))
    if (other != norms) return "norms differ between ranks";
  return "same";
}

TEST(Zero, EveryStageTakesTheStepsOfOneProcess) {
  const std::vector<GridShape> shapes = {
      {},
      {.data = 2},
      {.data = 3},
      {.context = 2, .data = 2},
      {.tensor = 2, .data = 2},
      {.tensor = 2, .data = 2, .pipeline = 2},
  };
  for (const GridShape& shape : shapes) {
    const auto check = [](const Grid& grid) -> std::string {
      for (const int stage : {0, 1, 2, 3}) {
        if (stage > 1 && grid.shape.pipeline > 1) continue;
        const Case c{
            grid.shape,
            {.sequence_parallel = grid.shape.tensor > 1, .zero = static_cast<ZeroStage>(stage), .bucket_bytes = 512}};
        for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
          if (const std::string result = check_steps(grid, c, type); result != "same")
            return concat("ZeRO ", stage, " ", type, ": ", result);
      }
      return "same";
    };
    EXPECT_EQ(run_ranks(shape, check), std::vector<std::string>(shape.num_ranks(), "same")) << to_string(shape);
  }
}

TEST(Zero, AnOverflowOnOneRankIsSkippedByAll) {
  const auto check = [](const Grid& grid) -> std::string {
    const Case c{grid.shape, {.sequence_parallel = true, .zero = ZeroStage::kOptimizer, .bucket_bytes = 512}};
    for (const bool fp16 : {true, false}) {
      OptimizerConfig config{.clip_grad = 1.0};
      if (fp16) config.loss_scale = LossScaleConfig{.initial = 8, .hysteresis = 1};
      Shared shared(grid, c, fp16 ? at::kHalf : at::kFloat, config);
      const at::Tensor before = shared.params.flat_values().clone();
      shared.reduce(c, 0);
      shared.reducer.begin_step(c.num_micro_batches);
      if (grid.rank == 1) {
        tensor::Param& column = shared.params.at("layers.1.column");
        tensor::settle_grad(column);  // so that what is planted is added to
        column.grad[0][0] = std::numeric_limits<float>::infinity();
      }
      run_backward(shared.params, grid, c, 1);
      shared.reducer.finish_step();
      const StepResult result = shared.optimizer.step(kRate, 1);
      if (!result.skipped || shared.optimizer.num_steps() != 0) return "not skipped";
      if (!at::equal(before, shared.params.flat_values())) return "updated";
      if (shared.optimizer.loss_scale() != (fp16 ? 4 : 1)) return concat("scale ", shared.optimizer.loss_scale());
    }
    return "skipped";
  };
  EXPECT_EQ(run_ranks({.tensor = 2, .data = 2}, check), std::vector<std::string>(4, "skipped"));
}

// Mistakes that reference implementations have made, done by hand: the comparisons above see each.
TEST(Zero, SeededMistakesAreSeen) {
  const auto no_clip = [](const Grid& grid) {
    const Case c{grid.shape, {.sequence_parallel = true}};
    const OptimizerConfig config{.clip_grad = 1.0, .count_zeros = true};
    OptimizerConfig wrong = config;
    if (grid.position.tensor > 0) wrong.clip_grad = 1e30;
    Whole whole(c, at::kFloat, config);
    Shared shared(grid, c, at::kFloat, wrong);
    whole.step(c, 0);
    shared.reduce(c, 0);
    shared.optimizer.step(kRate, kFactor);
    // Adam's first step hides the size of the gradient from the weights, but not from the moments.
    return difference(shared, whole);
  };
  const auto clipped = run_ranks({.tensor = 2}, no_clip);
  EXPECT_EQ(clipped[0], "");
  EXPECT_NE(clipped[1], "");

  const auto every_replica = [](const Grid& grid) {
    const Case c{grid.shape, {.sequence_parallel = true}};
    Whole whole(c, at::kFloat, {});
    Shared shared(grid, c, at::kFloat, {});
    const double expected = *whole.step(c, 0).grad_norm;
    shared.reduce(c, 0);
    double once_per_tensor_rank = 0;
    for (const OwnedPiece& piece : shared.reducer.pieces())
      once_per_tensor_rank += piece.grad.to(at::kDouble).pow(2).sum().item<double>();
    const double by_model = std::sqrt(grid.model.sum(once_per_tensor_rank)) * kFactor;
    const double by_world = std::sqrt(grid.world.sum(once_per_tensor_rank)) * kFactor;
    const double actual = *shared.optimizer.step(kRate, kFactor).grad_norm;
    return concat(near(by_model, expected), near(by_world, expected), near(actual, expected));
  };
  EXPECT_EQ(run_ranks({.tensor = 2, .data = 2}, every_replica), std::vector<std::string>(4, "001"));
}

// A model that computes: an input matrix, four layers of which each is gathered for itself, an output matrix.
struct Layers {
  static constexpr int64_t kDepth = 4, kWidth = 16;

  static std::vector<ParamSpec> specs() {
    std::vector<ParamSpec> specs;
    for (int64_t depth = 0; depth <= kDepth + 1; ++depth) {
      specs.push_back(spec_of(std::to_string(depth), {kWidth, kWidth}, depth, spec::Placement::split(0, {kWidth})));
      specs.back().init = spec::Init::normal(0.2);
    }
    return specs;
  }

  at::Tensor apply(int64_t depth, const at::Tensor& x) {
    return kernels::linear(x, params.at(std::to_string(depth)), nullptr, params.grad_queue());
  }

  void run_micro_batch(const plan::Recompute& recompute, double scale) {
    at::Tensor x = (at::arange(3 * kWidth, at::kFloat).view({3, kWidth}) * scale).sin().requires_grad_(true);
    x = apply(0, x);
    const auto layer = [this](int64_t number, const at::Tensor& in, const auto&) {
      const at::Tensor entered = dist::before_layer(&layers, number, in);
      return dist::after_layer(&layers, number, apply(number + 1, entered).tanh() + entered);
    };
    for (const plan::LayerRange& range : recompute.ranges(kDepth)) x = pipeline::run_layers(range, x, layer, alone);
    const at::Tensor loss = apply(kDepth + 1, x).pow(2).sum();
    torch::autograd::backward({loss}, {at::ones_like(loss)});
  }

  tensor::ParamSet& params;
  dist::LayerGather& layers;
  dist::Group alone = {};  // nobody shares what recompute keeps
};

// All weights after three steps.
std::string train_layers(const Grid& grid, ZeroStage zero, const plan::Recompute& recompute) {
  tensor::ParamSet params(Layers::specs(), {}, at::kFloat, true, {zero, grid.gradient.size()});
  GradReducer reducer(params, grid, {.zero = zero});
  Optimizer optimizer(params, {}, grid, &reducer);
  params.initialize(kSeed, [&](tensor::Param& param, const at::Tensor& fp32) { optimizer.set_master(param, fp32); });
  optimizer.publish();
  Layers model{params, reducer.layers()};
  for (int64_t step = 0; step < 3; ++step) {
    reducer.begin_step(1);
    model.run_micro_batch(recompute, 0.1 + static_cast<double>(grid.rank + step));
    reducer.finish_step();
    optimizer.step(kRate, 1);
  }
  std::string bits;
  for (int64_t depth = 0; depth <= Layers::kDepth + 1; ++depth) {
    reducer.layers().enter(depth - 1);
    const at::Tensor value = params.at(std::to_string(depth)).value.contiguous();
    bits.append(static_cast<const char*>(value.const_data_ptr()), static_cast<size_t>(value.nbytes()));
    reducer.layers().leave(depth - 1);
  }
  return bits;
}

TEST(Zero, LayersThatComeAndGoComputeTheSame) {
  const auto check = [](const Grid& grid) -> std::string {
    using Kind = plan::Recompute::Kind;
    const std::string expected = train_layers(grid, ZeroStage::kNone, {});
    for (const int stage : {1, 2, 3})
      for (const plan::Recompute& recompute :
           {plan::Recompute{}, {Kind::kUniform, 1}, {Kind::kUniform, 3}, {Kind::kBlock, 2}})
        if (train_layers(grid, static_cast<ZeroStage>(stage), recompute) != expected)
          return concat("ZeRO ", stage, ", recompute ", recompute.num_layers);
    return "same";
  };
  EXPECT_EQ(run_ranks({.data = 2}, check), std::vector<std::string>(2, "same"));
}

}  // namespace
}  // namespace espalier::optim
