#include "kernels/adam.h"

#include <ATen/ATen.h>

#include <cmath>

#include "base/error.h"

namespace espalier::kernels {

void adam_step(const at::Tensor& master, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq, const at::Tensor& grad,
               const at::Tensor& value, const AdamStep& step) {
  for (const at::Tensor* fp32 : {&master, &exp_avg, &exp_avg_sq, &grad}) {
    ESPALIER_CHECK(fp32->scalar_type() == at::kFloat && fp32->is_contiguous() && fp32->numel() == master.numel(),
                   "fp32, contiguous, ", master.numel(), " elements");
  }
  ESPALIER_CHECK(value.is_contiguous() && value.numel() == master.numel(), value.numel(), " for ", master.numel());
  const float beta1 = static_cast<float>(step.beta1), beta2 = static_cast<float>(step.beta2);
  const float one_minus_beta1 = static_cast<float>(1 - step.beta1), one_minus_beta2 = static_cast<float>(1 - step.beta2);
  const float correction1 = static_cast<float>(1 / (1 - std::pow(step.beta1, static_cast<double>(step.step))));
  const float correction2 = static_cast<float>(1 / (1 - std::pow(step.beta2, static_cast<double>(step.step))));
  const float lr = static_cast<float>(step.lr), decay = static_cast<float>(step.weight_decay);
  const float epsilon = static_cast<float>(step.epsilon), scale = static_cast<float>(step.grad_scale);
  float* p = master.data_ptr<float>();
  float* m = exp_avg.data_ptr<float>();
  float* v = exp_avg_sq.data_ptr<float>();
  const float* g = grad.const_data_ptr<float>();
  for (int64_t i = 0; i < master.numel(); ++i) {
    const float scaled = g[i] * scale;
    m[i] = beta1 * m[i] + one_minus_beta1 * scaled;
    v[i] = beta2 * v[i] + one_minus_beta2 * scaled * scaled;
    p[i] -= lr * (m[i] * correction1 / (std::sqrt(v[i] * correction2) + epsilon) + decay * p[i]);
  }
  if (!value.is_same(master) && value.data_ptr() != master.data_ptr()) value.view(-1).copy_(master.view(-1));
}

double sum_of_squares(const at::Tensor& values) {
  const float* v = values.const_data_ptr<float>();
  double sum = 0;
  for (int64_t i = 0; i < values.numel(); ++i) sum += static_cast<double>(v[i]) * v[i];
  return sum;
}

int64_t count_zeros(const at::Tensor& values) { return values.numel() - at::count_nonzero(values).item<int64_t>(); }

bool all_finite(const at::Tensor& values) { return at::isfinite(values).all().item<bool>(); }

}  // namespace espalier::kernels
