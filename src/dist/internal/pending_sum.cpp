#include "dist/internal/pending_sum.h"

#include <ATen/ATen.h>

#include <utility>

namespace espalier::dist {

PendingSum::PendingSum(const at::Tensor& values, const spec::IndexRange& part, const Group& group,
                       at::ScalarType type) {
  const at::Tensor travelling = values.to(type);
  part_ = travelling.narrow(0, part.begin, part.count());
  if (part.count() == values.numel())
    pending_ = group.start_all_reduce(travelling);
  else
    pending_ = group.start_reduce_scatter_into(part_, travelling);
}

at::Tensor PendingSum::wait() {
  pending_.wait();
  return std::exchange(part_, at::Tensor());
}

void PendingSum::wait_into(const at::Tensor& part) {
  const at::Tensor sum = wait();
  if (sum.const_data_ptr() != part.const_data_ptr()) part.copy_(sum);
}

}  // namespace espalier::dist
