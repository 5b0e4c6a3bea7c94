// Stochastic gradient descent with momentum, torch.optim.SGD's: decay is added to the gradient, nothing is damped:
//   d = g + weight_decay p;  b = momentum b + d;  p -= lr b
#pragma once

#include "spec/optimizer_element.h"

namespace espalier::spec {

struct Sgd : OptimizerTraits {
  static constexpr OptimizerType kType = OptimizerType::kSgd;
  static constexpr const char* kSpellings[] = {"sgd", "apex.sgd"};
  static constexpr const char* kOptions[] = {"--sgd-momentum"};
  static constexpr WidthRule kWidthRule = WidthRule::kVectorsMore;
  static constexpr int kNumStates = 1;
  static constexpr StateTensor kStates[] = {{"momentum_buffer"}};

  struct Constants {
    float lr, momentum, weight_decay, grad_scale;
  };
  static Constants constants(const OptimizerSettings& settings, const OptimizerStep& step) {
    return {.lr = static_cast<float>(step.lr),
            .momentum = static_cast<float>(settings.sgd_momentum),
            .weight_decay = static_cast<float>(step.weight_decay),
            .grad_scale = static_cast<float>(step.grad_scale)};
  }

  template <class V>
  ESPALIER_ANYWHERE static V decayed_gradient(const OptimizerElement<V>& element, const Constants& by) {
    return fma(V::all(by.weight_decay), element.weight, element.grad * V::all(by.grad_scale));
  }
  template <class V>
  ESPALIER_ANYWHERE static void update(OptimizerElement<V>& element, const Constants& by) {
    V& buffer = element.states[0];
    buffer = fma(V::all(by.momentum), buffer, decayed_gradient(element, by));
    element.weight = fma(V::all(-by.lr), buffer, element.weight);
  }
};

// What --sgd-momentum 0 makes of it: nothing is kept.
struct PlainSgd : Sgd {
  static constexpr OptimizerType kType = OptimizerType::kPlainSgd;
  static constexpr bool kIsVariant = true;
  static constexpr int kNumStates = 0;

  template <class V>
  ESPALIER_ANYWHERE static void update(OptimizerElement<V>& element, const Constants& by) {
    element.weight = fma(V::all(-by.lr), decayed_gradient(element, by), element.weight);
  }
};

}  // namespace espalier::spec
