// The constants of one step as every device's kernel takes them, in fp32.
#pragma once

#include <cmath>

#include "kernels/adam.h"
#include "kernels/internal/row_kernels.h"

namespace espalier::kernels {

inline AdamElements adam_constants(const AdamStep& step) {
  const double t = static_cast<double>(step.step);
  return {.master = nullptr,
          .exp_avg = nullptr,
          .exp_avg_sq = nullptr,
          .grad = nullptr,
          .value = nullptr,
          .lr = static_cast<float>(step.lr),
          .beta1 = static_cast<float>(step.beta1),
          .beta2 = static_cast<float>(step.beta2),
          .one_minus_beta1 = static_cast<float>(1 - step.beta1),
          .one_minus_beta2 = static_cast<float>(1 - step.beta2),
          .correction1 = static_cast<float>(1 / (1 - std::pow(step.beta1, t))),
          .correction2 = static_cast<float>(1 / (1 - std::pow(step.beta2, t))),
          .epsilon = static_cast<float>(step.epsilon),
          .weight_decay = static_cast<float>(step.weight_decay),
          .grad_scale = static_cast<float>(step.grad_scale)};
}

}  // namespace espalier::kernels
