// ADOPT (Taniguchi et al. 2024), with the clipping of its authors' code: the gradient is normalised by the second
// moment of the steps before it, and the first step only measures that:
//   t = 1:  v = g^2
//   t > 1:  n = clip(g / max(sqrt(v), epsilon), (t - 1)^(1/4));  m = beta1 m + (1 - beta1) n
//           p -= lr (m + weight_decay p);  v = beta2 v + (1 - beta2) g^2
#pragma once

#include <cmath>

#include "spec/optimizer_element.h"

namespace espalier::spec {

struct Adopt : OptimizerTraits {
  static constexpr OptimizerType kType = OptimizerType::kAdopt;
  static constexpr const char* kSpellings[] = {"adopt"};
  static constexpr const char* kOptions[] = {"--adam-beta1", "--adam-beta2", "--adam-eps", kFirstMomentOption,
                                             kSecondMomentOption};
  static constexpr int kNumStates = 2;
  static constexpr StateTensor kStates[] = {kFirstMoment, kSecondMoment};

  struct Constants {
    float lr, one_minus_beta1, keep_square, add_square, epsilon, clip, weight_decay, grad_scale;
  };
  static Constants constants(const OptimizerSettings& settings, const OptimizerStep& step) {
    const bool first = step.number == 1;
    return {.lr = first ? 0 : static_cast<float>(step.lr),
            .one_minus_beta1 = static_cast<float>(1 - settings.adam_beta1),
            .keep_square = first ? 0 : static_cast<float>(settings.adam_beta2),
            .add_square = first ? 1 : static_cast<float>(1 - settings.adam_beta2),
            .epsilon = static_cast<float>(settings.adam_eps),
            .clip = static_cast<float>(std::pow(static_cast<double>(step.number - 1), 0.25)),
            .weight_decay = static_cast<float>(step.weight_decay),
            .grad_scale = static_cast<float>(step.grad_scale)};
  }

  template <class V>
  ESPALIER_ANYWHERE static void update(OptimizerElement<V>& element, const Constants& by) {
    V &m = element.states[0], &v = element.states[1];
    const V g = element.grad * V::all(by.grad_scale), p = element.weight;
    const V normalized = g / max(sqrt(v), V::all(by.epsilon));
    const V clipped = min(max(normalized, V::all(-by.clip)), V::all(by.clip));
    m = fma(V::all(by.one_minus_beta1), clipped - m, m);
    element.weight = fma(V::all(-by.lr), fma(V::all(by.weight_decay), p, m), p);
    v = fma(V::all(by.keep_square), v, V::all(by.add_square) * (g * g));
  }
};

}  // namespace espalier::spec
