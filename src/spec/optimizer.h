// The optimizers as data: what plans, options, checkpoints, replica checks and the shards of ZeRO know of them. An
// optimizer is one file of spec/optimizers/, which has its state and its update; kernels/optimizer_update.h runs it.
#pragma once

#include <string>
#include <vector>

#include "spec/optimizer_element.h"
#include "spec/param_spec.h"

namespace espalier::spec {

// The exponential moving average of the fp32 masters, which any optimizer that does not average itself can keep.
inline constexpr StateTensor kEma{"ema", StateTensor::Start::kWeights};

struct OptimizerKind {
  OptimizerType type = OptimizerType::kAdam;
  std::vector<const char*> spellings;  // of --optimizer; config.toml holds the first
  bool is_variant = false;             // of the type with the same spellings, chosen by another setting
  // The master is a mean that is evaluated and exported; gradients are taken at other weights. It is kept in fp32 too.
  bool averages = false;
  bool keeps_ema = false;  // kEma of every parameter, in addition to `states`
  SecondPass second_pass = SecondPass::kNone;
  WidthRule width_rule = WidthRule::kMatricesLess;
  std::vector<const char*> options;  // that only some optimizers read, and this one does
  std::vector<StateTensor> states;
  OptimizerConstants (*constants)(const OptimizerSettings& settings, const OptimizerStep& step) = nullptr;

  std::string name() const { return spellings.front(); }
  bool reads(const std::string& option) const;
  bool has_state(const std::string& name) const;  // for any parameter
  // Muon: it updates the matrices of layers (ParamSpec::matrices) only, and AdamW the other parameters.
  bool leaves_others_to_adamw() const { return second_pass == SecondPass::kOrthogonalize; }
  // What it updates of `param`: itself, or AdamW.
  const OptimizerKind& of(const ParamSpec& param) const;
  // What multiplies its learning rate and epsilon for a parameter that it updates (muP); 1 at the base width.
  struct ByWidth {
    double lr = 1, epsilon = 1;
  };
  ByWidth by_width(const ParamSpec& param) const;
  // All tensors that it keeps for one parameter or another.
  std::vector<StateTensor> all_states() const;
};

// In the order of OptimizerType.
const std::vector<OptimizerKind>& optimizer_kinds();
const OptimizerKind& optimizer_kind(OptimizerType type);
// What the settings choose, a moving average included.
const OptimizerKind& optimizer_kind(const OptimizerSettings& settings);

// Bytes that an optimizer keeps for a parameter's element: its state and the fp32 master, unless that is the
// fp32 weights themselves. The mean where `matrices` is the share of the elements that are in matrices of layers.
double optimizer_bytes(const OptimizerKind& kind, bool fp32_weights, double matrices = 1);

}  // namespace espalier::spec
