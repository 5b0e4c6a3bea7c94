// Whoever still reads the state is asked before it changes, by everything of the optimizer that changes it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "optim/optimizer.h"

namespace espalier::optim {
namespace before_change_test {

// A matrix of a layer (which Muon updates) and a vector.
std::vector<spec::ParamSpec> two_specs() {
  spec::ParamSpec weight{.name = "weight",
                         .shape = {3, 128},
                         .tensor_placement = {},
                         .depth = 0,
                         .init = {},
                         .weight_decay = true,
                         .matrices = {{.first = 0, .count = 3}}};
  spec::ParamSpec bias{
      .name = "bias", .shape = {7}, .tensor_placement = {}, .depth = 0, .init = {}, .weight_decay = false};
  return {weight, bias};
}

using State = std::map<std::string, std::string>;  // bytes by name

std::string bytes_of(const at::Tensor& values) {
  return {static_cast<const char*>(values.const_data_ptr()), values.nbytes()};
}

State state_of(tensor::ParamSet& params, Optimizer& optimizer) {
  State state;
  for (tensor::Param& param : params.params()) state[param.spec->name] = bytes_of(param.value);
  optimizer.visit_state([&](const StatePiece& piece) {
    state[concat(piece.param->spec->name, ".", piece.kind)] = bytes_of(piece.values);
  });
  return state;
}

struct Change {
  const char* name;
  std::function<void(tensor::ParamSet&, Optimizer&)> make;
};

std::vector<Change> changes() {
  return {
      {"set_master",
       [](tensor::ParamSet& params, Optimizer& optimizer) {
         for (tensor::Param& param : params.params()) optimizer.set_master(param, at::full(param.spec->shape, 0.75));
       }},
      {"step", [](tensor::ParamSet&, Optimizer& optimizer) { optimizer.step(0.1, 1); }},
      {"second step", [](tensor::ParamSet&, Optimizer& optimizer) { optimizer.step(0.1, 1); }},
      {"publish", [](tensor::ParamSet&, Optimizer& optimizer) { optimizer.publish(); }},
      {"use_mean", [](tensor::ParamSet&, Optimizer& optimizer) { optimizer.use_mean(true); }},
      {"no more mean", [](tensor::ParamSet&, Optimizer& optimizer) { optimizer.use_mean(false); }},
      {"step after a mean", [](tensor::ParamSet&, Optimizer& optimizer) { optimizer.step(0.1, 1); }},
      {"update_curvature",
       [](tensor::ParamSet&, Optimizer& optimizer) {
         if (optimizer.kind().estimates_curvature) optimizer.update_curvature(8, 1);
       }},
      {"begin_ema", [](tensor::ParamSet&, Optimizer& optimizer) { optimizer.begin_ema(); }},
  };
}

struct Case {
  const char* name;
  spec::OptimizerSettings settings;
  std::vector<std::string> changed;  // by which of the changes its state is another, in each type
};

std::vector<Case> cases() {
  const std::vector<std::string> plain = {"set_master", "step", "second step", "step after a mean"};
  std::vector<std::string> mean = plain, ema, curvature = plain;
  mean.insert(mean.begin() + 3, {"use_mean", "no more mean"});
  ema = mean;
  ema.push_back("begin_ema");
  curvature.push_back("update_curvature");
  return {{"adam", {.optimizer = spec::OptimizerType::kAdam}, plain},
          {"sgd", {.optimizer = spec::OptimizerType::kSgd}, plain},
          {"lion", {.optimizer = spec::OptimizerType::kLion}, plain},
          {"lamb", {.optimizer = spec::OptimizerType::kLamb}, plain},
          {"adopt", {.optimizer = spec::OptimizerType::kAdopt}, plain},
          {"muon", {.optimizer = spec::OptimizerType::kMuon}, plain},
          {"fp8 moments", {.exp_avg_dtype = spec::StateType::kFp8, .exp_avg_sq_dtype = spec::StateType::kFp8}, plain},
          {"schedule-free", {.optimizer = spec::OptimizerType::kAdamScheduleFree}, mean},
          {"sophia", {.optimizer = spec::OptimizerType::kSophiaG}, curvature},
          {"ema", {.optimizer = spec::OptimizerType::kAdam, .ema = 0.5}, ema}};
}

void expect_asked(const Case& one, at::ScalarType type) {
  tensor::ParamSet params(two_specs(), {}, type, true);
  Optimizer optimizer(params, {.settings = one.settings, .clip_grad = 0, .evaluate_ema = one.settings.ema > 0},
                      dist::single_process());
  for (tensor::Param& param : params.params()) {
    optimizer.set_master(param, at::linspace(-1, 1, param.value.numel()).view(param.spec->shape));
    param.grad.copy_(at::linspace(0.5, 2, param.value.numel()).view(param.spec->shape));
  }
  std::vector<std::string> changed;
  for (const Change& change : changes()) {
    SCOPED_TRACE(change.name);
    const State before = state_of(params, optimizer);
    bool asked = false;
    optimizer.before_change([&] {
      if (!asked) {
        EXPECT_EQ(state_of(params, optimizer), before) << "it changed before it was asked";
      }
      asked = true;
    });
    change.make(params, optimizer);
    optimizer.before_change({});
    if (state_of(params, optimizer) == before) continue;
    EXPECT_TRUE(asked);
    changed.push_back(change.name);
    for (tensor::Param& param : params.params())  // directions are left in them
      param.grad.copy_(at::linspace(0.5, 2, param.value.numel()).view(param.spec->shape));
  }
  EXPECT_EQ(changed, one.changed);
}

TEST(BeforeChange, IsAskedByEverythingThatChangesTheState) {
  for (const Case& one : cases())
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(concat(one.name, type == at::kFloat ? ", fp32" : ", bf16"));
      expect_asked(one, type);
    }
}

TEST(BeforeChange, IsNotAskedForAStepThatIsSkipped) {
  tensor::ParamSet params(two_specs(), {}, at::kFloat, true);
  Optimizer optimizer(params, {}, dist::single_process());
  params.at("weight").grad.fill_(std::numeric_limits<float>::infinity());
  int asked = 0;
  optimizer.before_change([&] { ++asked; });
  EXPECT_TRUE(optimizer.step(0.1, 1).skipped);
  EXPECT_EQ(asked, 0);
  params.at("weight").grad.fill_(1);
  EXPECT_FALSE(optimizer.step(0.1, 1).skipped);
  EXPECT_EQ(asked, 1);
}

}  // namespace before_change_test
}  // namespace espalier::optim
