// LAMB (You et al. 2020): Adam's direction, scaled for each parameter by the ratio of its norm to the direction's:
//   u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay p
//   p -= lr r u;  r = |p| / |u|, 1 where either is 0 and for parameters that do not decay (biases, norms)
// The norms are of the whole parameter, over all ranks that hold parts of it, so the update has two passes: this one
// leaves u in the gradient.
#pragma once

#include "spec/optimizers/adam.h"

namespace espalier::spec {

struct Lamb : OptimizerTraits {
  static constexpr OptimizerType kType = OptimizerType::kLamb;
  static constexpr const char* kSpellings[] = {"lamb"};
  static constexpr const char* kOptions[] = {"--adam-beta1", "--adam-beta2", "--adam-eps", kFirstMomentOption,
                                             kSecondMomentOption};
  static constexpr int kNumStates = 2;
  static constexpr StateTensor kStates[] = {kFirstMoment, kSecondMoment};
  static constexpr WidthRule kWidthRule = WidthRule::kUnknown;
  static constexpr SecondPass kSecondPass = SecondPass::kScaleByNorms;

  using Constants = Adam::Constants;
  static Constants constants(const OptimizerSettings& settings, const OptimizerStep& step) {
    return Adam::constants(settings, step);
  }

  template <class V>
  ESPALIER_ANYWHERE static void update(OptimizerElement<V>& element, const Constants& by) {
    const V direction = Adam::direction(element, by);
    element.grad = fma(V::all(by.weight_decay), element.weight, direction);
  }
};

}  // namespace espalier::spec
