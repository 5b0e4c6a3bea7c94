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
  // Before some updates it wants the gradient of a loss whose labels are drawn from the model's predictions.
  bool estimates_curvature = false;
  bool keeps_ema = false;  // kEma of every parameter, in addition to `states`
  SecondPass second_pass = SecondPass::kNone;
  WidthRule width_rule = WidthRule::kMatricesLess;
  std::vector<const char*> options;  // that only some optimizers read, and this one does
  std::vector<StateTensor> states;
  const OptimizerKind* others = nullptr;  // AdamW with the same types of moments
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
// What the settings choose, types of moments and a moving average included.
const OptimizerKind& optimizer_kind(const OptimizerSettings& settings);

// Whether the queries and keys of attention are clipped after each update.
bool clips_logits(const OptimizerSettings& settings);

// Shares of a model's elements: of those in matrices of layers, and of those for which 8-bit blocks of moments fit.
struct ElementShares {
  double matrices = 1, blocks = 1;
};
// Bytes that an optimizer keeps for a parameter's element, in the mean: its state and the fp32 master, unless that is
// the fp32 weights themselves.
double optimizer_bytes(const OptimizerKind& kind, bool fp32_weights, const ElementShares& shares = {});

}  // namespace espalier::spec
