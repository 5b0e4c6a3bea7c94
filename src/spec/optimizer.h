// The optimizers as data: what plans, options, checkpoints, replica checks and the shards of ZeRO know of them. An
// optimizer is one file of spec/optimizers/, which has its state and its update; kernels/optimizer_update.h runs it.
#pragma once

#include <string>
#include <vector>

#include "spec/optimizer_element.h"

namespace espalier::spec {

struct OptimizerKind {
  OptimizerType type = OptimizerType::kAdam;
  std::vector<const char*> spellings;  // of --optimizer; config.toml holds the first
  bool is_variant = false;             // of the type with the same spellings, chosen by another setting
  // The master is a mean that is evaluated and exported; gradients are taken at other weights. It is kept in fp32 too.
  bool averages = false;
  // The update leaves a direction in the gradient, which is scaled by the norm of the whole parameter (LAMB).
  bool scales_by_norms = false;
  std::vector<const char*> options;  // that only some optimizers read, and this one does
  std::vector<StateTensor> states;
  OptimizerConstants (*constants)(const OptimizerSettings& settings, const OptimizerStep& step) = nullptr;

  std::string name() const { return spellings.front(); }
  bool reads(const std::string& option) const;
  bool has_state(const std::string& name) const;
};

// In the order of OptimizerType.
const std::vector<OptimizerKind>& optimizer_kinds();
const OptimizerKind& optimizer_kind(OptimizerType type);
// What the settings choose.
const OptimizerKind& optimizer_kind(const OptimizerSettings& settings);

// Bytes that an optimizer keeps for a parameter's element: its state and the fp32 master, unless that is the
// fp32 weights themselves.
double optimizer_bytes(const OptimizerKind& kind, bool fp32_weights);

}  // namespace espalier::spec
