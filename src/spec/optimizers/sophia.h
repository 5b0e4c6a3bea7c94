// Sophia-G (Liu et al. 2024): momentum divided by the diagonal of the curvature, no element of it larger than 1:
//   m = beta1 m + (1 - beta1) g;  p -= lr (clip(m / (rho h + 1e-15), 1) + weight_decay p)
// The curvature is estimated before every k-th update (Gauss-Newton-Bartlett): from the gradient e of the mean loss of
// n targets that were drawn from the model's own predictions,
//   h = beta2 h + (1 - beta2) n e^2
// An estimate is a pass of its own, in which m and p stay as they are.
#pragma once

#include "spec/optimizer_element.h"

namespace espalier::spec {

struct SophiaG : OptimizerTraits {
  static constexpr OptimizerType kType = OptimizerType::kSophiaG;
  static constexpr const char* kSpellings[] = {"sophiag"};
  static constexpr const char* kOptions[] = {"--sophiag-beta1", "--sophiag-beta2", "--sophiag-rho",
                                             "--sophiag-update-interval", kFirstMomentOption};
  static constexpr WidthRule kWidthRule = WidthRule::kUnknown;
  static constexpr bool kEstimatesCurvature = true;
  static constexpr int kNumStates = 2;
  static constexpr StateTensor kStates[] = {kFirstMoment, {"hessian"}};

  struct Constants {
    float lr, weight_decay, rho, grad_scale;
    float keep_mean, add_mean, keep_curvature, add_curvature;
  };
  static Constants constants(const OptimizerSettings& settings, const OptimizerStep& step) {
    const bool estimates = step.num_drawn > 0;
    const double beta1 = settings.sophiag_beta1, beta2 = settings.sophiag_beta2;
    return {.lr = estimates ? 0 : static_cast<float>(step.lr),
            .weight_decay = static_cast<float>(step.weight_decay),
            .rho = static_cast<float>(settings.sophiag_rho),
            .grad_scale = static_cast<float>(step.grad_scale),
            .keep_mean = estimates ? 1 : static_cast<float>(beta1),
            .add_mean = estimates ? 0 : static_cast<float>(1 - beta1),
            .keep_curvature = estimates ? static_cast<float>(beta2) : 1,
            .add_curvature = estimates ? static_cast<float>((1 - beta2) * step.num_drawn) : 0};
  }

  template <class V>
  ESPALIER_ANYWHERE static void update(OptimizerElement<V>& element, const Constants& by) {
    V &m = element.states[0], &h = element.states[1];
    const V g = element.grad * V::all(by.grad_scale), p = element.weight;
    m = fma(V::all(by.keep_mean), m, V::all(by.add_mean) * g);
    h = fma(V::all(by.keep_curvature), h, V::all(by.add_curvature) * g * g);
    const V newton = m / fma(V::all(by.rho), h, V::all(1e-15f));
    const V clipped = min(V::all(1), max(V::all(-1), newton));  // NaN stays NaN
    element.weight = fma(V::all(-by.lr), fma(V::all(by.weight_decay), p, clipped), p);
  }
};

}  // namespace espalier::spec
