// Muon (Jordan et al. 2024): momentum, then for each matrix of a layer the nearest orthogonal one, by Newton-Schulz
// iterations (optim/orthogonalize.h). This is the pass over elements, which leaves the direction in the gradient:
//   m = momentum m + (1 - momentum) g;  d = m, or with Nesterov's momentum d = momentum m + (1 - momentum) g
// and the second moves by it: p -= lr (scale orthogonal(d) + weight_decay p). What is no matrix of a layer (embeddings,
// the output layer, biases, norms) AdamW updates.
#pragma once

#include "spec/optimizer_element.h"

namespace espalier::spec {

struct Muon : OptimizerTraits {
  static constexpr OptimizerType kType = OptimizerType::kMuon;
  static constexpr const char* kSpellings[] = {"muon", "dist_muon"};
  static constexpr const char* kOptions[] = {"--muon-momentum",
                                             "--muon-nesterov",
                                             "--muon-scale-mode",
                                             "--muon-extra-scale-factor",
                                             "--muon-coefficient-type",
                                             "--muon-num-ns-steps",
                                             "--adam-beta1",
                                             "--adam-beta2",
                                             "--adam-eps",
                                             kFirstMomentOption,
                                             kSecondMomentOption};
  static constexpr int kNumStates = 1;
  static constexpr StateTensor kStates[] = {{.name = "momentum_buffer", .moment = StateTensor::Moment::kFirst}};
  static constexpr WidthRule kWidthRule = WidthRule::kNone;
  static constexpr SecondPass kSecondPass = SecondPass::kOrthogonalize;

  struct Constants {
    float keep, add;               // of the buffer: keep m + add g
    float from_buffer, from_grad;  // of the direction
    float grad_scale;
  };
  static Constants constants(const OptimizerSettings& settings, const OptimizerStep& step) {
    const double momentum = settings.muon_momentum;
    return {.keep = static_cast<float>(momentum),
            .add = static_cast<float>(1 - momentum),
            .from_buffer = static_cast<float>(settings.muon_nesterov ? momentum : 1),
            .from_grad = static_cast<float>(settings.muon_nesterov ? 1 - momentum : 0),
            .grad_scale = static_cast<float>(step.grad_scale)};
  }

  template <class V>
  ESPALIER_ANYWHERE static void update(OptimizerElement<V>& element, const Constants& by) {
    const V grad = element.grad * V::all(by.grad_scale);
    V& buffer = element.states[0];
    buffer = fma(V::all(by.keep), buffer, V::all(by.add) * grad);
    element.grad = fma(V::all(by.from_buffer), buffer, V::all(by.from_grad) * grad);
  }
};

}  // namespace espalier::spec
