// A sum over ranks under way, of fp32 values in the type in which gradients travel.
#pragma once

#include <ATen/core/Tensor.h>

#include "dist/group.h"
#include "spec/shard.h"

namespace espalier::dist {

class PendingSum {
 public:
  PendingSum() = default;  // nothing to wait for
  // Starts summing `values` (fp32, [n], used up) over `group`. This rank needs the elements `part` of the sum.
  PendingSum(const at::Tensor& values, const spec::IndexRange& part, const Group& group, at::ScalarType type);

  bool active() const { return pending_.active(); }
  // The part of the sum, in the type in which it travelled: under fp32 it is in `values` already. Once.
  at::Tensor wait();
  // The same into `part` (fp32).
  void wait_into(const at::Tensor& part);

 private:
  at::Tensor part_;
  Pending pending_;
};

}  // namespace espalier::dist
