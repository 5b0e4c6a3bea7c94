// Lion (Chen et al. 2023): the sign of a momentum, with decoupled decay:
//   c = beta1 m + (1 - beta1) g;  p -= lr (sign(c) + weight_decay p);  m = beta2 m + (1 - beta2) g
#pragma once

#include "spec/optimizer_element.h"

namespace espalier::spec {

struct Lion : OptimizerTraits {
  static constexpr OptimizerType kType = OptimizerType::kLion;
  static constexpr const char* kSpellings[] = {"lion"};
  static constexpr const char* kOptions[] = {"--lion-beta1", "--lion-beta2", kFirstMomentOption};
  static constexpr int kNumStates = 1;
  static constexpr StateTensor kStates[] = {kFirstMoment};

  struct Constants {
    float lr, beta1, beta2, one_minus_beta1, one_minus_beta2, weight_decay, grad_scale;
  };
  static Constants constants(const OptimizerSettings& settings, const OptimizerStep& step) {
    return {.lr = static_cast<float>(step.lr),
            .beta1 = static_cast<float>(settings.lion_beta1),
            .beta2 = static_cast<float>(settings.lion_beta2),
            .one_minus_beta1 = static_cast<float>(1 - settings.lion_beta1),
            .one_minus_beta2 = static_cast<float>(1 - settings.lion_beta2),
            .weight_decay = static_cast<float>(step.weight_decay),
            .grad_scale = static_cast<float>(step.grad_scale)};
  }

  template <class V>
  ESPALIER_ANYWHERE static void update(OptimizerElement<V>& element, const Constants& by) {
    V& m = element.states[0];
    const V g = element.grad * V::all(by.grad_scale), p = element.weight;
    const V c = fma(V::all(by.beta1), m, V::all(by.one_minus_beta1) * g);
    const V sign = select_positive(c, V::all(1), select_positive(V::all(0) - c, V::all(-1), c));  // NaN stays NaN
    element.weight = fma(V::all(-by.lr), fma(V::all(by.weight_decay), p, sign), p);
    m = fma(V::all(by.beta2), m, V::all(by.one_minus_beta2) * g);
  }
};

}  // namespace espalier::spec
