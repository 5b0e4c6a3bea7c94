// AdamW (Loshchilov and Hutter 2019), apex's FusedAdam in its default mode: decoupled decay, bias correction:
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   p -= lr ((m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay p)
#pragma once

#include <cmath>

#include "spec/optimizer_element.h"

namespace espalier::spec {

struct Adam : OptimizerTraits {
  static constexpr OptimizerType kType = OptimizerType::kAdam;
  static constexpr const char* kSpellings[] = {"adam", "adamw", "apex.adam"};
  static constexpr const char* kOptions[] = {"--adam-beta1", "--adam-beta2", "--adam-eps", kFirstMomentOption,
                                             kSecondMomentOption};
  static constexpr int kNumStates = 2;
  static constexpr StateTensor kStates[] = {kFirstMoment, kSecondMoment};

  struct Constants {
    float lr, beta1, beta2, one_minus_beta1, one_minus_beta2, correction1, correction2, epsilon, weight_decay;
    float grad_scale;
  };
  static Constants constants(const OptimizerSettings& settings, const OptimizerStep& step) {
    const double t = static_cast<double>(step.number), beta1 = settings.adam_beta1, beta2 = settings.adam_beta2;
    return {.lr = static_cast<float>(step.lr),
            .beta1 = static_cast<float>(beta1),
            .beta2 = static_cast<float>(beta2),
            .one_minus_beta1 = static_cast<float>(1 - beta1),
            .one_minus_beta2 = static_cast<float>(1 - beta2),
            .correction1 = static_cast<float>(1 / (1 - std::pow(beta1, t))),
            .correction2 = static_cast<float>(1 / (1 - std::pow(beta2, t))),
            .epsilon = static_cast<float>(settings.adam_eps),
            .weight_decay = static_cast<float>(step.weight_decay),
            .grad_scale = static_cast<float>(step.grad_scale)};
  }

  // Without decay; moves the moments on.
  template <class V>
  ESPALIER_ANYWHERE static V direction(OptimizerElement<V>& element, const Constants& by) {
    V &m = element.states[0], &v = element.states[1];
    const V g = element.grad * V::all(by.grad_scale);
    m = fma(V::all(by.beta1), m, V::all(by.one_minus_beta1) * g);
    v = fma(V::all(by.beta2), v, V::all(by.one_minus_beta2) * (g * g));
    return (m * V::all(by.correction1)) / (sqrt(v * V::all(by.correction2)) + V::all(by.epsilon));
  }
  template <class V>
  ESPALIER_ANYWHERE static void update(OptimizerElement<V>& element, const Constants& by) {
    const V p = element.weight;
    element.weight = fma(V::all(-by.lr), fma(V::all(by.weight_decay), p, direction(element, by)), p);
  }
};

}  // namespace espalier::spec
