#include "train/finite_values.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace espalier::train {
namespace {

constexpr int64_t kElementsAtOnce = int64_t{1} << 20;

}  // namespace

// A sum in double of fp32, bf16 or fp16 numbers is finite exactly if they all are.
bool is_finite(const at::Tensor& values) {
  const at::Tensor flat = values.detach().reshape({-1});
  for (int64_t begin = 0; begin < flat.numel(); begin += kElementsAtOnce) {
    const at::Tensor part = flat.narrow(0, begin, std::min(kElementsAtOnce, flat.numel() - begin));
    if (!std::isfinite(part.to(at::kDouble).sum().item<double>())) return false;
  }
  return true;
}

}  // namespace espalier::train
