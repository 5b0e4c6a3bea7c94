#include "optim/orthogonalize.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "kernels/newton_schulz.h"

namespace espalier::optim {
namespace {

constexpr double kSmallestNorm = 1e-7;

// Of each iteration; the last one again from there on. "quintic" is that of the modded-nanogpt records, which makes the
// singular values more equal with as many steps; "simple" Jordan's.
const std::vector<kernels::NewtonSchulzStep>& coefficients_of(spec::MuonCoefficients type) {
  static const std::vector<kernels::NewtonSchulzStep> simple = {{3.4445, -4.7750, 2.0315}};
  static const std::vector<kernels::NewtonSchulzStep> quintic = {{4.0848, -6.8946, 2.9270},
                                                                 {3.9505, -6.3029, 2.6377},
                                                                 {3.7418, -5.5913, 2.3037},
                                                                 {2.8769, -3.1427, 1.2046},
                                                                 {2.8366, -3.0525, 1.2012}};
  return type == spec::MuonCoefficients::kSimple ? simple : quintic;
}

}  // namespace

at::Tensor orthogonalized(const at::Tensor& direction, at::ScalarType compute,
                          const spec::OptimizerSettings& settings) {
  ESPALIER_CHECK(direction.dim() == 2 && direction.scalar_type() == at::kFloat, "a matrix of fp32");
  const bool is_tall = direction.size(0) > direction.size(1);
  at::Tensor x = is_tall ? direction.t().contiguous() : direction;
  x = (x / at::linalg_vector_norm(x).clamp_min(kSmallestNorm)).to(compute).contiguous();
  const std::vector<kernels::NewtonSchulzStep>& all = coefficients_of(settings.muon_coefficient_type);
  for (int64_t step = 0; step < settings.muon_num_ns_steps; ++step)
    x = kernels::newton_schulz(x, all[static_cast<size_t>(std::min(step, static_cast<int64_t>(all.size()) - 1))]);
  return (is_tall ? x.t() : x).to(at::kFloat).contiguous();
}

double muon_scale(int64_t rows, int64_t columns, const spec::OptimizerSettings& settings) {
  const double high = static_cast<double>(rows), wide = static_cast<double>(columns);
  double scale = std::sqrt(std::max(high, wide));
  if (settings.muon_scale_mode == spec::MuonScale::kShapeScaling) scale = std::sqrt(std::max(1.0, high / wide));
  if (settings.muon_scale_mode == spec::MuonScale::kUnitRmsNorm) scale = std::sqrt(high / wide);
  return scale * settings.muon_extra_scale_factor;
}

}  // namespace espalier::optim
