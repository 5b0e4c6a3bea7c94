// Schedule-free AdamW and SGD (Defazio et al. 2024): gradients are taken at y, between the steps z and their weighted
// mean x, which is what is evaluated and exported. No learning rate has to decay.
//   y = (1 - beta) z + beta x
//   z -= lr (d + weight_decay y);  x = (1 - c) x + c z
// with d = g / (sqrt(v / (1 - beta2^t)) + epsilon) or g, beta = --adam-beta1 or --sgd-momentum, and c the share of this
// step in the mean: the square of the largest learning rate so far, by the sum of those squares.
// The master is x; the weights of the forward pass are y.
#pragma once

#include <cmath>

#include "spec/optimizer_element.h"

namespace espalier::spec {

struct ScheduleFree : OptimizerTraits {
  static constexpr bool kAverages = true;

  struct Constants {
    float lr, beta, beta2, one_minus_beta2, correction2, epsilon, weight_decay, share, grad_scale;
  };
  // Of update number 0: nothing moves, the weights are written.
  static Constants constants(double beta, double beta2, double epsilon, const OptimizerStep& step) {
    const bool moves = step.number > 0;
    const double t = static_cast<double>(step.number);
    return {.lr = static_cast<float>(step.lr),
            .beta = static_cast<float>(beta),
            .beta2 = moves ? static_cast<float>(beta2) : 1,
            .one_minus_beta2 = moves ? static_cast<float>(1 - beta2) : 0,
            .correction2 = moves ? static_cast<float>(1 / (1 - std::pow(beta2, t))) : 1,
            .epsilon = static_cast<float>(epsilon),
            .weight_decay = static_cast<float>(step.weight_decay),
            .share = static_cast<float>(step.share),
            .grad_scale = static_cast<float>(step.grad_scale)};
  }

  template <class V>
  ESPALIER_ANYWHERE static V between(const V& z, const V& x, const Constants& by) {
    return fma(V::all(by.beta), x - z, z);
  }
  // Moves z and x against d, which is of y, and leaves the next y.
  template <class V>
  ESPALIER_ANYWHERE static void move(OptimizerElement<V>& element, const V& y, const V& d, const Constants& by) {
    V &z = element.states[0], &x = element.weight;
    z = fma(V::all(-by.lr), fma(V::all(by.weight_decay), y, d), z);
    x = fma(V::all(by.share), z - x, x);
    element.value = between(z, x, by);
  }
};

struct AdamScheduleFree : ScheduleFree {
  static constexpr OptimizerType kType = OptimizerType::kAdamScheduleFree;
  static constexpr const char* kSpellings[] = {"adamwschedulefree"};
  static constexpr const char* kOptions[] = {"--adam-beta1", "--adam-beta2", "--adam-eps"};
  static constexpr int kNumStates = 2;
  static constexpr StateTensor kStates[] = {{"z", StateTensor::Start::kWeights}, {"exp_avg_sq"}};

  static Constants constants(const OptimizerSettings& settings, const OptimizerStep& step) {
    return ScheduleFree::constants(settings.adam_beta1, settings.adam_beta2, settings.adam_eps, step);
  }
  template <class V>
  ESPALIER_ANYWHERE static void update(OptimizerElement<V>& element, const Constants& by) {
    V& v = element.states[1];
    const V y = between(element.states[0], element.weight, by), g = element.grad * V::all(by.grad_scale);
    v = fma(V::all(by.beta2), v, V::all(by.one_minus_beta2) * (g * g));
    move(element, y, g / (sqrt(v * V::all(by.correction2)) + V::all(by.epsilon)), by);
  }
};

struct SgdScheduleFree : ScheduleFree {
  static constexpr OptimizerType kType = OptimizerType::kSgdScheduleFree;
  static constexpr const char* kSpellings[] = {"sgdschedulefree"};
  static constexpr WidthRule kWidthRule = WidthRule::kVectorsMore;
  static constexpr const char* kOptions[] = {"--sgd-momentum"};
  static constexpr int kNumStates = 1;
  static constexpr StateTensor kStates[] = {{"z", StateTensor::Start::kWeights}};

  static Constants constants(const OptimizerSettings& settings, const OptimizerStep& step) {
    return ScheduleFree::constants(settings.sgd_momentum, 0, 0, step);
  }
  template <class V>
  ESPALIER_ANYWHERE static void update(OptimizerElement<V>& element, const Constants& by) {
    const V y = between(element.states[0], element.weight, by);
    move(element, y, element.grad * V::all(by.grad_scale), by);
  }
};

}  // namespace espalier::spec
