#include "dist/internal/combination.h"

#include <ATen/ATen.h>

namespace espalier::dist {

// The first two go into the result at once, so that it may lie on either; the others are added to it.
void Combination::run(const std::vector<const void*>& sources, void* result, int64_t count) const {
  const auto view = [&](const void* data) {
    return at::from_blob(const_cast<void*>(data), {count}, at::TensorOptions().dtype(type_));
  };
  const at::Tensor to = view(result);
  at::Tensor total = widens() ? view(sources[0]).to(at::kFloat) : to;
  for (size_t i = 1; i < sources.size(); ++i) {
    const at::Tensor left = i == 1 && !widens() ? view(sources[0]) : total, right = view(sources[i]);
    if (kind_ == Kind::kSum)
      at::add_out(total, left, right);
    else
      at::maximum_out(total, left, widens() ? right.to(at::kFloat) : right);
  }
  if (widens()) to.copy_(total);
}

}  // namespace espalier::dist
