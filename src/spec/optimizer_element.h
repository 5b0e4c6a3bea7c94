// What the files of spec/optimizers/ are made of: how one element of a weight is updated.
//
// Plain header: the units compiled for one instruction set include it, and the CUDA kernels.
#pragma once

#include <cstdint>

#include "spec/anywhere.h"
#include "spec/optimizer_settings.h"

namespace espalier::spec {

// In the order of spec/optimizers/list.h.
enum class OptimizerType : int {
  kAdam,
  kSgd,
  kPlainSgd,
  kLion,
  kLamb,
  kAdopt,
  kAdamScheduleFree,
  kSgdScheduleFree,
  kMuon,
  kSophiaG,
  kAdam8bit,  // kAdam with moments in eight bits: has no kind of its own
  kMuonClip   // kMuon with qk_clip: likewise
};
inline constexpr int kNumOptimizers = 10;  // that have a kind, and kernels, of their own

// How a state is stored (spec/stored_state.h).
enum class StateType : int { kFp32, kBf16, kFp8 };

// A tensor that an optimizer keeps for each parameter, with an element for each of its.
struct StateTensor {
  enum class Start { kZeros, kWeights };
  // Moments begin as zeros and may be stored in fewer bits than fp32: first ones have a sign, second ones do not.
  enum class Moment { kNone, kFirst, kSecond };
  const char* name;  // in checkpoints after the parameter's: "layers.0.mlp.dense_h_to_4h.weight.exp_avg"
  Start start = Start::kZeros;
  Moment moment = Moment::kNone;
  StateType type = StateType::kFp32;  // that the run asks for; stored_type() says what a parameter has
};
inline constexpr int kMaxOptimizerStates = 2;

inline constexpr StateTensor kFirstMoment{.name = "exp_avg", .moment = StateTensor::Moment::kFirst};
inline constexpr StateTensor kSecondMoment{.name = "exp_avg_sq", .moment = StateTensor::Moment::kSecond};
inline constexpr const char *kFirstMomentOption = "--exp-avg-dtype", *kSecondMomentOption = "--exp-avg-sq-dtype";

// What an update depends on beside settings, gradient and state.
struct OptimizerStep {
  double lr = 0;
  double weight_decay = 0;  // of the parameter
  int64_t number = 1;       // of the update; 1 for the first, 0: of a mean, nothing moves and the value is written
  double grad_scale = 1;    // multiplies the gradient before use (clipping, loss scale, token count)
  double share = 0;         // of this step in the mean of all (OptimizerKind::averages)
  // Where above 0 the gradient is not for an update: so many labels were drawn (OptimizerKind::estimates_curvature).
  double num_drawn = 0;
};

// The numbers of one step in fp32: the Constants of an optimizer, as bytes.
inline constexpr int kMaxOptimizerConstants = 16;
struct OptimizerConstants {
  float values[kMaxOptimizerConstants] = {};
};

// V: sixteen floats of one instruction set, or one of the GPU's.
template <class V>
struct OptimizerElement {
  V weight;  // the fp32 master
  V states[kMaxOptimizerStates];
  V grad;
  V value;  // that the forward pass uses, where it is not the master
};

// What an update that needs whole parameters does after the pass over elements, which then leaves a direction in the
// gradient, and master and value as they are.
enum class SecondPass {
  kNone,
  kScaleByNorms,   // moves by the direction, scaled by the norms of the parameter and of the direction
  kOrthogonalize,  // moves by the direction's nearest orthogonal matrix
};

// How updates change with the width of a model (muP; Yang et al. 2022, table 8), so that a learning rate that is good
// for a base model is good for one `width` times as wide.
enum class WidthRule {
  kMatricesLess,  // of normalized updates: matrices of layers have lr / width and epsilon / width
  kVectorsMore,   // of gradient descent: everything else has lr * width
  kNone,          // the update has the right size already
  kUnknown,
};

// What most optimizers are.
struct OptimizerTraits {
  static constexpr bool kIsVariant = false, kAverages = false, kEstimatesCurvature = false;
  static constexpr WidthRule kWidthRule = WidthRule::kMatricesLess;
  static constexpr SecondPass kSecondPass = SecondPass::kNone;
};

}  // namespace espalier::spec
